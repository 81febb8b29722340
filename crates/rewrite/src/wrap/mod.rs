//! Interposition: what is done before and after the calls between a guarded module and the kernel, and the code in the module that does it.
//!
//! This is what annotations of functions are compiled into. How it reaches the runtime stands in `runtime/include/guardrail_abi.h` (`struct guardrail_action`).

mod data;
mod redirect;
#[cfg(test)]
mod tests;
mod thunk;

pub use guardrail_kernel::isolation::{Value, When};
pub use redirect::Done;
pub(crate) use redirect::{CALLS, ENTRIES, INIT_ENTRIES, interpose};

use std::collections::BTreeMap;

/// What an action does. An address of 0 leaves it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// The domain may write there from now on.
    Grant {
        /// From here on.
        pointer: Value,
        /// Bytes.
        size: Value,
    },
    /// The domain may not write there any more.
    Revoke {
        /// From here on.
        pointer: Value,
        /// Bytes.
        size: Value,
    },
    /// The domain has to be allowed to write there, since the function does so for it.
    RequireWrite {
        /// From here on.
        pointer: Value,
        /// Bytes.
        size: Value,
    },
    /// The domain owns this allocation from now on. The right to write it is not given by this.
    Own {
        /// From here on.
        pointer: Value,
        /// Bytes.
        size: Value,
        /// By what functions it is freed: a number other than 0 that the annotations agree on.
        kind: u32,
    },
    /// The domain has to own this allocation, and gives it up with the right to write it.
    Disown {
        /// Its begin.
        pointer: Value,
        /// By what functions it is freed.
        kind: u32,
    },
    /// The domain may write these fields of an object (offset and size) from now on.
    Fields {
        /// The object.
        pointer: Value,
        /// Offsets and sizes.
        fields: Vec<(u32, u32)>,
    },
    /// The domain may not write these fields any more.
    UnFields {
        /// The object.
        pointer: Value,
        /// Offsets and sizes.
        fields: Vec<(u32, u32)>,
    },
    /// An object of the kernel, of which the domain may write some fields, begins there, in state 0. If it is one of that type already it is put into state 0.
    Object {
        /// Its begin.
        pointer: Value,
        /// Bytes.
        size: Value,
        /// Its type: a number other than 0 that the annotations agree on.
        kind: u32,
        /// Offsets and sizes.
        fields: Vec<(u32, u32)>,
    },
    /// There has to be an object of this type, in this state if one is given.
    RequireObject {
        /// Its begin.
        pointer: Value,
        /// Its type.
        kind: u32,
        /// Its state.
        state: Option<u32>,
    },
    /// There has to be an object of this type in a state, and it goes to another.
    MoveObject {
        /// Its begin.
        pointer: Value,
        /// Its type.
        kind: u32,
        /// The state that it is in; `None` for any.
        from: Option<u32>,
        /// The state that it goes to.
        to: u32,
    },
    /// If there is an object of this type it is none any more. The right to write its memory is not given by this.
    ClearObject {
        /// Its begin.
        pointer: Value,
        /// Its type.
        kind: u32,
    },
    /// There has to be an object of this type, in this state if one is given, and it is none any more.
    EndObject {
        /// Its begin.
        pointer: Value,
        /// Its type.
        kind: u32,
        /// Its state.
        state: Option<u32>,
    },
    /// The domain has to be allowed to call this function by pointer, since it has others call it.
    RequireCall {
        /// The function.
        pointer: Value,
    },
    /// The thread goes away and does not return: it has left all entries into the domain.
    Exit,
    /// What the runtime's function `guardrail_custom_<name>` does.
    Custom {
        /// Part of the function's name.
        name: String,
        /// What it is given, in the place of a pointer.
        pointer: Value,
        /// What else it is given, in the place of a size.
        size: Value,
    },
    /// The same before a call of the kernel. Where the function returns something else than 0 the call is left out, and its result is what the
    /// function has put into the frame.
    Instead {
        /// Part of the function's name.
        name: String,
        /// What it is given, in the place of a pointer.
        pointer: Value,
        /// What else it is given, in the place of a size.
        size: Value,
    },
}

/// Something done before or after a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Whether it is done.
    pub when: When,
    /// What is done.
    pub op: Op,
}

impl From<Op> for Action {
    fn from(op: Op) -> Action {
        Action { when: When::Always, op }
    }
}

/// What is done when the module calls a function of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wrapper {
    /// Before the call, in this order.
    pub before: Vec<Action>,
    /// After it.
    pub after: Vec<Action>,
    /// Words of arguments on the stack: those from the seventh on, and structs passed by value.
    pub stack_words: u8,
    /// It takes a variable number of arguments: it can have no actions after it.
    pub variadic: bool,
}

/// What is done when the kernel calls a function of the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Before the function. If one of them finds no memory for the rights the function is not called.
    pub before: Vec<Action>,
    /// After it, also where it was not called for that reason.
    pub after: Vec<Action>,
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
