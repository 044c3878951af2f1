"""The parts of `scripts/gpu`: suites of programs that run with and without the library, and what the suites share.

A GPU machine has the packed folder, Python, and often nvcc and the frameworks, but neither cargo nor a network. So this
package needs Python 3.9 and its standard library only.
"""
