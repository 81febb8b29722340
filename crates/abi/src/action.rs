//! Actions: what a call across the border does to rights. Annotations are resolved to them, and the rewriter writes them down as `struct
//! guardrail_action`.

use crate as abi;

/// A number that an action works with: an address, a size, a count. All arithmetic is modulo 2⁶⁴.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An argument of the function, from 0; those from the seventh on are on the stack. The upper part of an argument narrower than 8
    /// bytes is undefined: use [`Low`](Self::Low).
    Arg(u8),
    /// What the function has returned. Only actions after it can use this.
    Result,
    /// A number.
    Const(i64),
    /// What is at an address plus so many bytes, as an unsigned number of 1, 2, 4 or 8 bytes. If it cannot be read the action is left out.
    Load(Box<Value>, i32, u8),
    /// The low 1, 2 or 4 bytes of a value, as an unsigned number.
    Low(Box<Value>, u8),
    /// A sum.
    Add(Box<Value>, Box<Value>),
    /// A product.
    Mul(Box<Value>, Box<Value>),
    /// The first shifted left by the second, which is below 64.
    Shl(Box<Value>, Box<Value>),
}

/// The condition of an action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// It is always performed.
    #[default]
    Always,
    /// The result is a pointer, neither NULL nor an error.
    ResultValid,
    /// The result, an `int`, is 0.
    ResultZero,
    /// The result, an `int`, is 0 or more.
    ResultNotNegative,
    /// The result, a `bool`, is true.
    ResultTrue,
    /// The argument is not 0.
    NonZero(u8),
}

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Field {
    /// Its first byte, from the structure's start.
    pub offset: u32,
    /// Its bytes; of a pointer to a function in [`Action::RequireCalls`], the number of its type, or 0.
    pub size: u32,
}

/// What a call does to rights, or requires. An address of 0 leaves the action out.
///
/// The word of an annotation, the number `GUARDRAIL_ACTION_…` and the runtime's function `guardrail_do_…` have the variant's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The domain may write there from now on.
    Grant {
        /// The first byte.
        pointer: Value,
        /// Number of bytes.
        size: Value,
    },
    /// The domain may not write there any more.
    Revoke {
        /// The first byte.
        pointer: Value,
        /// Number of bytes.
        size: Value,
    },
    /// The domain must have the right to write there, since the function writes on its behalf.
    RequireWrite {
        /// The first byte.
        pointer: Value,
        /// Number of bytes.
        size: Value,
    },
    /// The domain owns this allocation from now on. This does not grant the right to write it.
    Own {
        /// Its first byte.
        pointer: Value,
        /// Number of bytes.
        size: Value,
        /// Its kind, which says what functions free it.
        kind: u32,
    },
    /// The domain must own this allocation, and gives it up with the right to write it.
    Disown {
        /// Its first byte.
        pointer: Value,
        /// Its kind.
        kind: u32,
    },
    /// The domain may write these fields of an object from now on.
    GrantFields {
        /// The object.
        pointer: Value,
        /// The fields.
        fields: Vec<Field>,
    },
    /// The domain may not write these fields any more.
    RevokeFields {
        /// The object.
        pointer: Value,
        /// The fields.
        fields: Vec<Field>,
    },
    /// A kernel object, of which the domain may write some fields, begins there in state 0. An object of this type that is there already is
    /// put into state 0.
    CreateObject {
        /// Its first byte.
        pointer: Value,
        /// Number of bytes.
        size: Value,
        /// Its type.
        kind: u32,
        /// Fields that the domain may write.
        fields: Vec<Field>,
    },
    /// There must be an object of this type.
    RequireObject {
        /// Its first byte.
        pointer: Value,
        /// Its type.
        kind: u32,
        /// The state that it must be in; `None` for any.
        state: Option<u32>,
    },
    /// There must be an object of this type, which moves to another state.
    MoveObject {
        /// Its first byte.
        pointer: Value,
        /// Its type.
        kind: u32,
        /// The state that it must be in; `None` for any.
        from: Option<u32>,
        /// The state that it moves to.
        to: u32,
    },
    /// There must be an object of this type, which ends.
    DestroyObject {
        /// Its first byte.
        pointer: Value,
        /// Its type.
        kind: u32,
        /// The state that it must be in; `None` for any.
        state: Option<u32>,
    },
    /// An object of this type ends if there is one. This does not grant the right to write its memory.
    ForgetObject {
        /// Its first byte.
        pointer: Value,
        /// Its type.
        kind: u32,
    },
    /// The domain must have the right to call this function by pointer, since others will call it on its behalf.
    RequireCall {
        /// The function.
        pointer: Value,
        /// The number of the type of functions by which they call it; 0 where that is not known.
        function: u32,
    },
    /// The domain must have the right to call each of these functions by pointer, for the same reason.
    RequireCalls {
        /// The structure that holds them.
        pointer: Value,
        /// Its pointers to functions, each with the number of their type in place of a size.
        fields: Vec<Field>,
    },
    /// The thread exits in this function: it leaves all entries into the domain.
    Exit,
    /// The domain has registered something with the kernel, which is undone if the domain dies.
    Registers {
        /// The function of the kernel that undoes it.
        inverse: String,
        /// Its arguments, from one to four.
        values: Vec<Value>,
    },
    /// The domain has undone a registration.
    Unregisters {
        /// The function of the kernel that is noted to undo it.
        inverse: String,
        /// The arguments that are noted.
        values: Vec<Value>,
        /// Which of them must be the same, a bit each.
        counts: u32,
    },
    /// The runtime's function `guardrail_custom_NAME` does it.
    Custom {
        /// The end of the function's name.
        name: String,
        /// Its first value.
        pointer: Value,
        /// Its second value.
        size: Value,
    },
    /// In a transaction, the call is made when the transaction is over.
    Defer {
        /// The allocation that it frees; the constant 0 for none.
        pointer: Value,
        /// The allocation's kind.
        kind: u32,
        /// What it does at once: 1 gives the mapping in the first arguments to the processor, 2 a list of mappings. 3 says that it
        /// hands a packet to GRO.
        sync: u32,
    },
    /// In a transaction, the call writes there.
    Save {
        /// The first byte.
        pointer: Value,
        /// Number of bytes.
        size: Value,
    },
    /// In a transaction, a function of the kernel undoes the call.
    Reverse {
        /// The function.
        inverse: String,
        /// Its arguments, from one to six.
        values: Vec<Value>,
    },
    /// In a transaction, the call writes to a device.
    Touch,
    /// In a transaction, nothing undoes the call.
    Irrevocable {
        /// Only if calls were deferred, which are made now: 1 for all of them, 2 for those that hand packets to GRO; else 0.
        settles: u32,
    },
    /// The same before a call of the kernel. If the function returns other than 0 the call is left out, and its result is what the function
    /// has stored.
    Instead {
        /// The end of the function's name.
        name: String,
        /// Its first value.
        pointer: Value,
        /// Its second value.
        size: Value,
    },
}

impl Action {
    /// The number by which `guardrail_action.kind` names it.
    pub fn kind(&self) -> u8 {
        match self {
            Action::Grant { .. } => abi::ACTION_GRANT,
            Action::Revoke { .. } => abi::ACTION_REVOKE,
            Action::RequireWrite { .. } => abi::ACTION_REQUIRE_WRITE,
            Action::Own { .. } => abi::ACTION_OWN,
            Action::Disown { .. } => abi::ACTION_DISOWN,
            Action::GrantFields { .. } => abi::ACTION_GRANT_FIELDS,
            Action::RevokeFields { .. } => abi::ACTION_REVOKE_FIELDS,
            Action::CreateObject { .. } => abi::ACTION_CREATE_OBJECT,
            Action::RequireObject { .. } => abi::ACTION_REQUIRE_OBJECT,
            Action::MoveObject { .. } => abi::ACTION_MOVE_OBJECT,
            Action::DestroyObject { .. } => abi::ACTION_DESTROY_OBJECT,
            Action::ForgetObject { .. } => abi::ACTION_FORGET_OBJECT,
            Action::RequireCall { .. } => abi::ACTION_REQUIRE_CALL,
            Action::RequireCalls { .. } => abi::ACTION_REQUIRE_CALLS,
            Action::Exit => abi::ACTION_EXIT,
            Action::Registers { .. } => abi::ACTION_REGISTERS,
            Action::Unregisters { .. } => abi::ACTION_UNREGISTERS,
            Action::Defer { .. } => abi::ACTION_DEFER,
            Action::Save { .. } => abi::ACTION_SAVE,
            Action::Reverse { .. } => abi::ACTION_REVERSE,
            Action::Touch => abi::ACTION_TOUCH,
            Action::Irrevocable { .. } => abi::ACTION_IRREVOCABLE,
            Action::Custom { .. } | Action::Instead { .. } => abi::ACTION_CUSTOM,
        }
    }

    /// The runtime's function that performs it.
    pub fn function(&self) -> String {
        let own = match self {
            Action::Grant { .. } => abi::symbol::DO_GRANT,
            Action::Revoke { .. } => abi::symbol::DO_REVOKE,
            Action::RequireWrite { .. } => abi::symbol::DO_REQUIRE_WRITE,
            Action::Own { .. } => abi::symbol::DO_OWN,
            Action::Disown { .. } => abi::symbol::DO_DISOWN,
            Action::GrantFields { .. } => abi::symbol::DO_GRANT_FIELDS,
            Action::RevokeFields { .. } => abi::symbol::DO_REVOKE_FIELDS,
            Action::CreateObject { .. } => abi::symbol::DO_CREATE_OBJECT,
            Action::RequireObject { .. } => abi::symbol::DO_REQUIRE_OBJECT,
            Action::MoveObject { .. } => abi::symbol::DO_MOVE_OBJECT,
            Action::DestroyObject { .. } => abi::symbol::DO_DESTROY_OBJECT,
            Action::ForgetObject { .. } => abi::symbol::DO_FORGET_OBJECT,
            Action::RequireCall { .. } => abi::symbol::DO_REQUIRE_CALL,
            Action::RequireCalls { .. } => abi::symbol::DO_REQUIRE_CALLS,
            Action::Exit => abi::symbol::DO_EXIT,
            Action::Registers { .. } => abi::symbol::DO_REGISTERS,
            Action::Unregisters { .. } => abi::symbol::DO_UNREGISTERS,
            Action::Defer { .. } => abi::symbol::DO_DEFER,
            Action::Save { .. } => abi::symbol::DO_SAVE,
            Action::Reverse { .. } => abi::symbol::DO_REVERSE,
            Action::Touch => abi::symbol::DO_TOUCH,
            Action::Irrevocable { .. } => abi::symbol::DO_IRREVOCABLE,
            Action::Custom { name, .. } | Action::Instead { name, .. } => {
                return format!("{}custom_{name}", abi::PREFIX);
            }
        };
        own.to_owned()
    }

    /// The address that it is about.
    pub fn pointer(&self) -> Option<&Value> {
        match self {
            Action::Grant { pointer, .. }
            | Action::Revoke { pointer, .. }
            | Action::RequireWrite { pointer, .. }
            | Action::Own { pointer, .. }
            | Action::Disown { pointer, .. }
            | Action::GrantFields { pointer, .. }
            | Action::RevokeFields { pointer, .. }
            | Action::CreateObject { pointer, .. }
            | Action::RequireObject { pointer, .. }
            | Action::MoveObject { pointer, .. }
            | Action::DestroyObject { pointer, .. }
            | Action::ForgetObject { pointer, .. }
            | Action::RequireCall { pointer, .. }
            | Action::RequireCalls { pointer, .. }
            | Action::Defer { pointer, .. }
            | Action::Save { pointer, .. }
            | Action::Custom { pointer, .. }
            | Action::Instead { pointer, .. } => Some(pointer),
            Action::Registers { values, .. }
            | Action::Unregisters { values, .. }
            | Action::Reverse { values, .. } => values.first(),
            Action::Exit | Action::Touch | Action::Irrevocable { .. } => None,
        }
    }

    /// The size, or the second value.
    pub fn size(&self) -> Option<&Value> {
        match self {
            Action::Grant { size, .. }
            | Action::Revoke { size, .. }
            | Action::RequireWrite { size, .. }
            | Action::Own { size, .. }
            | Action::CreateObject { size, .. }
            | Action::Save { size, .. }
            | Action::Custom { size, .. }
            | Action::Instead { size, .. } => Some(size),
            Action::Registers { values, .. }
            | Action::Unregisters { values, .. }
            | Action::Reverse { values, .. } => values.get(1),
            _ => None,
        }
    }

    /// The values of a registration behind these two.
    pub fn more(&self) -> &[Value] {
        match self {
            Action::Registers { values, .. }
            | Action::Unregisters { values, .. }
            | Action::Reverse { values, .. } => values.get(2..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// The function that undoes a registration.
    pub fn inverse(&self) -> Option<&str> {
        match self {
            Action::Registers { inverse, .. }
            | Action::Unregisters { inverse, .. }
            | Action::Reverse { inverse, .. } => Some(inverse),
            _ => None,
        }
    }

    /// The kind of allocation, the type of object or of functions, or the number of values of a registration; 0 if it has none.
    pub fn object(&self) -> u32 {
        match self {
            Action::Own { kind, .. }
            | Action::Disown { kind, .. }
            | Action::CreateObject { kind, .. }
            | Action::RequireObject { kind, .. }
            | Action::MoveObject { kind, .. }
            | Action::DestroyObject { kind, .. }
            | Action::ForgetObject { kind, .. }
            | Action::Defer { kind, .. } => *kind,
            Action::RequireCall { function, .. } => *function,
            Action::Registers { values, .. }
            | Action::Unregisters { values, .. }
            | Action::Reverse { values, .. } => values.len() as u32,
            _ => 0,
        }
    }

    /// The state that the object must be in, or the values that must be the same; and the state that it moves to.
    pub fn states(&self) -> (Option<u32>, u32) {
        match self {
            Action::RequireObject { state, .. } | Action::DestroyObject { state, .. } => (*state, 0),
            Action::MoveObject { from, to, .. } => (*from, *to),
            Action::Unregisters { counts, .. } => (Some(*counts), 0),
            Action::Defer { sync, .. } => (None, *sync),
            Action::Irrevocable { settles } => (None, *settles),
            _ => (None, 0),
        }
    }

    /// Whether it does nothing outside of transactions.
    pub fn transacts(&self) -> bool {
        match self {
            Action::Defer { .. }
            | Action::Save { .. }
            | Action::Reverse { .. }
            | Action::Touch
            | Action::Irrevocable { .. } => true,
            Action::Custom { name, .. } => name.starts_with("transact_"),
            _ => false,
        }
    }

    /// Its fields.
    pub fn fields(&self) -> &[Field] {
        match self {
            Action::GrantFields { fields, .. }
            | Action::RevokeFields { fields, .. }
            | Action::RequireCalls { fields, .. }
            | Action::CreateObject { fields, .. } => fields,
            _ => &[],
        }
    }
}

/// An action and its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The condition.
    pub when: When,
    /// What is done.
    pub action: Action,
}

impl From<Action> for Step {
    fn from(action: Action) -> Step {
        Step { when: When::Always, action }
    }
}
