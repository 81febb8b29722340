//! Callbacks at entries and returns of hooked kernel functions.

use super::blocks::{context, log_gs_base, thread, top_of_stack};
use super::lists;
use crate::state::{ARGS, RAX, RSP, Tracer, Vcpu, tracer};
use guardrail_plugin::with_env;
use guardrail_trace::config::{Hook, ListWalk};
use guardrail_trace::event::{Head, Kind, MAX_ARGS};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;

/// Most values that one hook reads through its arguments.
pub const MAX_DEREFS: usize = 64;

with_env! {
    /// A hooked function is entered.
    on_hook => hook_entered
}

extern "C" fn hook_entered(index: c_uint, number: *mut c_void, env: *mut u64) {
    let Some(tracer) = tracer() else { return };
    if !tracer.active.load(Relaxed) {
        return;
    }
    let number = number as usize;
    // SAFETY: this is the vCPU's callback.
    let (Some(vcpu), Some(hook)) =
        (unsafe { tracer.running_at(index, env) }, tracer.config.hooks.get(number))
    else {
        return;
    };
    let count = usize::from(hook.args).min(MAX_ARGS);
    let rsp = vcpu.reg(RSP);
    let (task, _) = context(tracer, vcpu);
    let pid = thread(tracer, vcpu, task);
    let mut words = [0; 4 + MAX_ARGS + MAX_DEREFS];
    let derefs = hook.derefs.len().min(MAX_DEREFS);
    words[0] = Head::encode(Kind::HookCall, (count + derefs) as u8, number as u64);
    words[1..4].copy_from_slice(&[task, rsp, top_of_stack(tracer, vcpu, (task, pid), rsp).unwrap_or(0)]);
    let mut len = 4;
    for register in &ARGS[..count] {
        words[len] = vcpu.reg(*register);
        len += 1;
    }
    for deref in hook.derefs.iter().take(MAX_DEREFS) {
        let arg = usize::from(deref.arg) % MAX_ARGS;
        let pointer = if arg < count { words[4 + arg] } else { vcpu.reg(ARGS[arg]) };
        let at = pointer.wrapping_add(deref.offset);
        words[len] = read_word(tracer, vcpu, at, usize::from(deref.size)).unwrap_or(0);
        len += 1;
    }
    let (mut lists, mut kept) = (Vec::new(), None);
    let coherent = tracer.coherent().filter(|coherent| coherent.changes_at(number));
    if coherent.is_some() || !hook.lists.is_empty() {
        let args = vcpu.args();
        if let Some(coherent) = coherent {
            coherent.entered(number, tracer.direct_map.load(Relaxed), &args);
        }
        kept = (coherent.is_some() || hook.lists.iter().any(|list| list.at_return)).then_some(args);
        lists = read_lists(vcpu, hook, number as u32, rsp, &args, |list| list.at_entry);
    }
    if hook.result {
        tracer.hooked.enter(number as u32, rsp, kept);
    }
    vcpu.writer.begin();
    log_gs_base(vcpu);
    vcpu.writer.push_slice(&words[..len]);
    push_lists(vcpu, &lists);
    vcpu.writer.close();
}

/// Reads the wanted lists of a hook into records. It does so before the writer takes a ticket, so that
/// reading delays no other vCPU.
fn read_lists(
    vcpu: &mut Vcpu,
    hook: &Hook,
    number: u32,
    rsp: u64,
    args: &[u64; MAX_ARGS],
    wanted: impl Fn(&ListWalk) -> bool,
) -> Vec<Vec<u64>> {
    let lists = (0u8..).zip(&hook.lists).filter(|(_, list)| wanted(list));
    lists.map(|(i, list)| lists::record(vcpu, list, i, number, rsp, args)).collect()
}

fn push_lists(vcpu: &mut Vcpu, lists: &[Vec<u64>]) {
    for list in lists {
        vcpu.writer.push_slice(list);
    }
}

with_env! {
    /// A return runs that may end calls of hooks.
    on_hook_return => hook_returns
}

extern "C" fn hook_returns(index: c_uint, hooks: *mut c_void, env: *mut u64) {
    let Some(tracer) = tracer() else { return };
    if !tracer.active.load(Relaxed) {
        return;
    }
    // SAFETY: this is the vCPU's callback, and lists of hooks are never freed.
    let (Some(vcpu), hooks) = (unsafe { (tracer.running_at(index, env), &*hooks.cast::<Vec<u32>>()) }) else {
        return;
    };
    let rsp = vcpu.reg(RSP);
    // Many functions share a return. Only calls that were entered with this stack pointer end here.
    let Some(left) = tracer.hooked.leave(hooks, rsp) else { return };
    let rax = vcpu.reg(RAX);
    let mut begun = false;
    for (hook, args) in std::iter::once(left.first).chain(left.more) {
        if let (Some(coherent), Some(args)) = (tracer.coherent(), &args) {
            coherent.returned(hook as usize, tracer.direct_map.load(Relaxed), args, rax);
        }
        let lists = match (args, tracer.config.hooks.get(hook as usize)) {
            (Some(args), Some(known)) => read_lists(vcpu, known, hook, rsp, &args, |list| list.at_return),
            _ => Vec::new(),
        };
        if !std::mem::replace(&mut begun, true) {
            vcpu.writer.begin();
        }
        vcpu.writer.push_slice(&[Head::encode(Kind::HookRet, 0, u64::from(hook)), rsp, rax]);
        push_lists(vcpu, &lists);
    }
    vcpu.writer.close();
}

/// Reads up to eight bytes of guest memory, zero-extended. Addresses in the direct map need no page
/// walk.
fn read_word(tracer: &Tracer, vcpu: &mut Vcpu, at: u64, len: usize) -> Option<u64> {
    let physical = at.wrapping_sub(tracer.direct_map.load(Relaxed));
    tracer.ram.word(physical, len).or_else(|| vcpu.read_word(at, len))
}
