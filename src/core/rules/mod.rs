//! The safety rules by name. With the feature `break-rules` single rules can be switched off at
//! run time, so that tests can show each of them to be needed. Without it every rule holds, at no
//! cost: `rule_holds` is a constant.
//!
//! A new rule is one line in the list of its area, and `if rule_holds(Rule::X)` at its place.

#[macro_use]
mod captures;
#[macro_use]
mod contexts;
#[macro_use]
mod memory;
#[macro_use]
mod order;

/// Joins the lists named in brackets: each adds its rules and passes the rest on.
macro_rules! join {
    ([] $($rules:tt)*) => { rules! { $($rules)* } };
    ([$list:ident $($more:ident)*] $($rules:tt)*) => { $list! { join [$($more)*] $($rules)* } };
}

macro_rules! rules {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// A rule without which memory would be reused too early, or released too early.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Rule {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Rule {
            pub const ALL: &'static [Rule] = &[$(Rule::$variant,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Rule::$variant => $name,)*
                }
            }
        }
    };
}

join! { [memory captures contexts order] }

impl Rule {
    pub fn from_name(name: &str) -> Option<Rule> {
        Rule::ALL.iter().copied().find(|rule| rule.name() == name)
    }
}

/// Returns whether the rule is in force: always, unless a test has broken it.
#[cfg(not(feature = "break-rules"))]
#[inline(always)]
pub const fn rule_holds(_rule: Rule) -> bool {
    true
}

#[cfg(feature = "break-rules")]
pub use switches::{rule_holds, set_broken};

#[cfg(feature = "break-rules")]
mod switches {
    use core::sync::atomic::{AtomicU64, Ordering};

    use super::Rule;

    const WORDS: usize = Rule::ALL.len().div_ceil(u64::BITS as usize);

    /// One bit for each rule, set while it is broken.
    static BROKEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

    pub fn rule_holds(rule: Rule) -> bool {
        let (word, bit) = place(rule);
        BROKEN[word].load(Ordering::Relaxed) & bit == 0
    }

    fn place(rule: Rule) -> (usize, u64) {
        let number = rule as u32;
        ((number / u64::BITS) as usize, 1 << (number % u64::BITS))
    }

    /// Breaks exactly the rules in `names` (separated by commas, spaces ignored), for the whole
    /// process. An empty text restores all rules.
    ///
    /// # Errors
    ///
    /// Returns an unknown name, and changes nothing.
    pub fn set_broken(names: &str) -> Result<(), &str> {
        let mut broken = [0; WORDS];
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let (word, bit) = place(Rule::from_name(name).ok_or(name)?);
            broken[word] |= bit;
        }
        for (word, bits) in BROKEN.iter().zip(broken) {
            word.store(bits, Ordering::Relaxed);
        }
        Ok(())
    }
}
