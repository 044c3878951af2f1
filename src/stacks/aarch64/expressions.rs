//! Expressions in unwind tables. Compilers write some for frames whose size depends on the vector
//! length; these are left to libgcc.

#[derive(Clone, Copy)]
pub(crate) struct Expression;

impl Expression {
    pub(crate) fn of(_: &[u8], _: u64) -> Expression {
        Expression
    }
}
