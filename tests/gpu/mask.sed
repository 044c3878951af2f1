# What may differ between two runs of one program: applied to both outputs before they are compared.
/^time:/d
s/0x[0-9a-fA-F]{6,}/ADDRESS/g
