//! Names of locks and memory for messages.

use crate::checker::Cx;
use crate::checkers::members;
use crate::machine::{Context, State, describe};
use crate::order::{LockId, LockInfo};
use crate::stacks::StackId;
use guardrail_finding::{AccessInfo, ContextInfo, Frame, HeldLock, Related};
use guardrail_knowledge::effect::{LockKind, LockMode};

/// A number of bytes, as text.
pub fn bytes(n: u64) -> String {
    if n == 1 { "1 byte".to_owned() } else { format!("{n} bytes") }
}

/// What an access does, as a noun or a verb.
pub fn access_word(store: bool) -> &'static str {
    if store { "write" } else { "read" }
}

/// An access for a report.
pub fn access(store: bool, addr: u64, size: u64) -> AccessInfo {
    AccessInfo { what: access_word(store).to_owned(), address: format!("{addr:#x}"), size }
}

/// A further site of a report.
pub fn related(state: &State, what: impl Into<String>, stack: StackId) -> Related {
    Related { what: what.into(), stack: state.whole_of(stack), context: None }
}

/// The kind of a lock, as a message spells it.
pub fn kind(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Spin => "spinlock",
        LockKind::Rw => "rwlock",
        LockKind::Mutex => "mutex",
        LockKind::Semaphore => "semaphore",
        LockKind::RwSem => "rw_semaphore",
        LockKind::Rcu => "RCU read section",
        LockKind::Socket => "socket lock",
        LockKind::Bit => "bit lock",
    }
}

/// The class of a lock: where its memory is from, and its offset there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A lock of the kernel with a name that no other lock has.
    Global(&'static str),
    /// A variable of a module, and an offset in it.
    Variable(u32, u64, u64),
    /// An object by the near part of its allocation stack and size in bytes, and an offset in it.
    Object(StackId, u64, u64),
    /// An address in memory about which nothing is known.
    Address(u64),
}

/// The class of a lock, from its name or its address.
pub fn class(state: &State, lock: &LockInfo) -> Class {
    if let Some(name) = lock.name {
        return Class::Global(name);
    }
    let at = lock.address;
    if let Some((index, _)) = state.modules.at(at) {
        let start = state.modules.variable_at(at).map_or(at, |(_, range, _)| range.start);
        return Class::Variable(index, start, at.wrapping_sub(start));
    }
    match state.objects.at(at) {
        Some((_, object)) => {
            Class::Object(state.stacks.near(object.allocated), object.size, at.wrapping_sub(object.start))
        }
        None => Class::Address(at),
    }
}

/// Names a lock: a variable, a member or an offset of an object, or its address.
pub fn lock(state: &State, lock: &LockInfo) -> String {
    let member = || {
        let (_, object) = state.objects.at(lock.address)?;
        let module = allocator(state, object.allocated)?.module?;
        members::lock(state, object, &module, lock.address.checked_sub(object.start)?)
    };
    lock.name.map(str::to_owned).or_else(member).unwrap_or_else(|| memory(state, lock.address))
}

/// Names an address: a variable of a module, an offset in an object, or the address itself.
pub fn memory(state: &State, at: u64) -> String {
    if let Some((_, range, _)) = state.modules.variable_at(at) {
        return match at - range.start {
            0 => range.name.to_string(),
            offset => format!("{}+{offset:#x}", range.name),
        };
    }
    if let Some((_, object)) = state.objects.at(at)
        && at >= object.start
    {
        let sort = format!("{}-byte {} object", object.size, object.class.name());
        return match allocator(state, object.allocated) {
            Some(Frame { function, .. }) => {
                format!("offset {} of the {sort} allocated in {function}", at - object.start)
            }
            None => format!("offset {} of a {sort}", at - object.start),
        };
    }
    format!("{at:#x}")
}

/// The driver's function that allocated an object; `None` where the driver is not in the stack.
fn allocator(state: &State, stack: StackId) -> Option<Frame> {
    let stack = state.stacks.get(stack);
    let frame = |(i, &at): (usize, &u64)| Some(state.frame(at, i > 0)).filter(|f| f.in_driver());
    stack.iter().enumerate().find_map(frame)
}

/// Held locks, each with its mode and the stack where it was taken, for a report.
///
/// A lock is held once where a function is said to be called with it, and where it is taken again for reading.
pub fn held(state: &State, held: impl Iterator<Item = (LockId, LockMode, StackId)>) -> Vec<HeldLock> {
    let mut known = Vec::new();
    held.filter_map(|(id, mode, stack)| {
        if known.contains(&(id, mode)) {
            return None;
        }
        known.push((id, mode));
        let info = state.order.lock(id)?;
        Some(HeldLock {
            name: lock(state, info),
            kind: kind(info.kind).to_owned(),
            shared: mode == LockMode::Shared,
            stack: state.whole_of(stack),
        })
    })
    .collect()
}

/// The context that runs, with its held locks and the states of the objects that it works on.
pub fn who(cx: &Cx<'_>) -> ContextInfo {
    let mut who = describe(cx.state, cx.context, cx.cpu);
    if let Some(context) = cx.context {
        who.locks = held(cx.state, context.order.held.iter().map(|a| (a.lock, a.mode, a.stack)));
        who.states = states(cx.state, context);
    }
    who
}

fn states(state: &State, context: &Context) -> Vec<String> {
    context.order.entries.last().map_or_else(Vec::new, |entry| state.order.states_of(entry))
}
