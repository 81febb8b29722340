//! Interposition: what is done before and after the calls between a guarded module and the kernel, and the code in the module that does it.
//!
//! This is what annotations of functions are compiled into. How it reaches the runtime stands in `runtime/include/guardrail_abi.h` (`struct guardrail_action`).

mod data;
mod redirect;
#[cfg(test)]
mod tests;
mod thunk;

pub use guardrail_abi::{Action, Field, Step, Value, When};
pub use redirect::Done;
pub(crate) use redirect::{CALLS, ENTRIES, INIT_ENTRIES, interpose};

use std::collections::BTreeMap;

/// What is done when the module calls a function of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wrapper {
    /// Before the call, in this order.
    pub before: Vec<Step>,
    /// After it.
    pub after: Vec<Step>,
    /// Words of arguments on the stack: those from the seventh on, and structs passed by value.
    pub stack_words: u8,
    /// It takes a variable number of arguments: it can have no actions after it.
    pub variadic: bool,
}

/// What is done when the kernel calls a function of the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Before the function. If one of them finds no memory for the rights the function is not called.
    pub before: Vec<Step>,
    /// After it, also where it was not called for that reason.
    pub after: Vec<Step>,
    /// Words of arguments on the stack. More than there are do no harm.
    pub stack_words: u8,
    /// What the caller gets where the function is not called, since the domain is dead or there was no memory for its rights.
    pub dead: i64,
    /// The function may write its callers' stack, for those of which not all arguments are known.
    pub callers_stack: bool,
}

/// Words of arguments on the stack that a function is given of which nothing is known.
const UNKNOWN_WORDS: u8 = 6;

/// All that is done at the border of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interposition {
    /// Functions that the module calls, by name; those without actions are called as they are.
    pub imports: BTreeMap<String, Wrapper>,
    /// Functions of the module, by the name of their symbol.
    pub entries: BTreeMap<String, Entry>,
    /// For functions of the module that are not among them.
    pub default_entry: Entry,
}

impl Default for Interposition {
    /// Where nothing is known: no actions, and functions of the module may have any arguments.
    fn default() -> Interposition {
        let default_entry = Entry { stack_words: UNKNOWN_WORDS, callers_stack: true, ..Entry::default() };
        Interposition { imports: BTreeMap::new(), entries: BTreeMap::new(), default_entry }
    }
}
