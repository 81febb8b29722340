//! Decides what to instrument, once, when QEMU translates a block.

use crate::callbacks::{accesses, blocks, gate, holds, hooks, modules};
use crate::code::kernel_entries::Entry;
use crate::code::{self, Exit, Special, Target, gate_sites};
use crate::state::{Block, HoldSite, Leave, MemFlags, MemSite, Port, Tracer, tracer};
use guardrail_plugin::block::{InsnView, View};
use guardrail_plugin::ffi::{self, CB_NO_REGS, CB_R_REGS, CB_RW_REGS_PC, Tb, VcpuCb};
use guardrail_plugin::probe;
use guardrail_plugin::registers::Flags;
use guardrail_trace::event::MAX_ARGS;
use iced_x86::{FlowControl, Instruction, Register};
use std::ffi::c_void;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// Callback for each block that QEMU has translated. Only here can the plugin instrument the block.
pub extern "C" fn on_translation(tb: *mut Tb, _: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: the block of this callback.
    let view = unsafe { View::new(tb) };
    let start = view.address();
    // Most of what the kernel runs without a driver it has run before it loads one.
    if tracer.posts() && tracer.active.load(Relaxed) && goes_back(&view) {
        view.call(gate::on_left, CB_NO_REGS, 0);
    }
    let Some(slide) = tracer.slide() else {
        if let Some(slide) = probe::slide(&tracer.config.probe, start, |len| view.bytes(len)) {
            tracer.set_slide(slide);
            kernel_block(tracer, &view, start, slide);
        }
        return;
    };
    if let Some(generation) = tracer.watched.find(start) {
        driver_block(tracer, &view, start, generation);
    } else if tracer.in_kernel_text(start) {
        kernel_block(tracer, &view, start, slide);
        if tracer.gate.as_ref().is_some_and(|gate| gate.is_accessor(start.wrapping_sub(slide))) {
            gated_block(tracer, &view, start);
        }
    } else {
        if tracer.gate.as_ref().is_some_and(|gate| gate.libraries.contains(start)) {
            gated_block(tracer, &view, start);
        }
        module_block(tracer, &view, start);
    }
}

/// Instruments the hooks of a block of a module that is not watched, if it has any.
fn module_block(tracer: &Tracer, view: &View, start: u64) {
    let known = tracer.module_hooks.read().unwrap_or_else(PoisonError::into_inner);
    if known.is_empty() {
        return;
    }
    let end = view.insn(view.len() - 1).address();
    for &(address, _, number) in known.iter().filter(|hook| (start..=end).contains(&hook.0)) {
        if let Some(insn) = (0..view.len()).map(|i| view.insn(i)).find(|insn| insn.address() == address) {
            insn.call(hooks::on_hook, CB_R_REGS, number as usize);
        }
    }
}

/// Instruments a block of other code that may access devices for the driver: the gate holds its device
/// accesses.
fn gated_block(tracer: &Tracer, view: &View, start: u64) {
    let bytes = view.all_bytes();
    let insns = code::decode(start, &bytes);
    let sites = tracer.control_in_translation().gate_sites(start, &bytes, &insns);
    for site in sites {
        let data = address(site);
        view.insn(usize::from(site.index)).call(gate::on_site, CB_RW_REGS_PC, data);
    }
}

/// Instruments the hooks of a kernel block, if it has any.
fn kernel_block(tracer: &Tracer, view: &View, start: u64, slide: u64) {
    let last = view.insn(view.len() - 1);
    let end = last.address();
    for &(link, entry) in tracer.entries.within(start.wrapping_sub(slide), end.wrapping_sub(slide)) {
        let address = link.wrapping_add(slide);
        let Some(insn) = (0..view.len()).map(|i| view.insn(i)).find(|i| i.address() == address) else {
            continue;
        };
        match entry {
            Entry::Hook(number) => insn.call(hooks::on_hook, CB_R_REGS, number as usize),
            Entry::Config(number) => {
                insn.call(gate::on_config, CB_RW_REGS_PC, number as usize);
            }
            Entry::Probe => insn.call(gate::on_probe, CB_R_REGS, 0),
            Entry::ChildProbe => insn.call(gate::on_child_probe, CB_R_REGS, 0),
            Entry::Remap => insn.call(gate::on_remap, CB_NO_REGS, 0),
            Entry::Arrival => insn.call(gate::on_arrival, CB_RW_REGS_PC, arrival(address, Flags::Untouched)),
            Entry::Delivery => insn.call(gate::on_left, CB_NO_REGS, 0),
            Entry::ModuleLoad => insn.call(modules::on_load, CB_R_REGS, 0),
            Entry::ModuleFree => insn.call(modules::on_free, CB_R_REGS, 0),
            Entry::ModuleUnload => insn.call(modules::on_unload, CB_R_REGS, 0),
        }
    }
    if tracer.posts() && is_idle(&last.bytes()) {
        let flags = code::flags(&code::decode(start, &view.all_bytes()), view.len() - 1);
        last.call(gate::on_arrival, CB_RW_REGS_PC, arrival(end, flags));
    }
    let link = end.wrapping_sub(slide);
    if tracer.entries.has_returns(link)
        && let Some(insn) = code::decode(end, &last.bytes()).first()
        && code::is_return(insn, tracer)
    {
        let hooks = tracer.control_in_translation().hook_list(tracer.entries.returns(link));
        last.call(hooks::on_hook_return, CB_R_REGS, address(hooks));
    }
}

/// Instruments a block of a watched module completely.
fn driver_block(tracer: &Tracer, view: &View, start: u64, generation: u64) {
    let bytes = view.all_bytes();
    let insns = code::decode(start, &bytes);
    let exit = insns.last().map_or(Exit::Stays, |last| code::exit(last, tracer));
    if let Some(site) = insns.last().and_then(|last| code::resume_site(last, exit)) {
        let mut sites = tracer.sites.write().unwrap_or_else(PoisonError::into_inner);
        // A call that never returns may be followed by the next function.
        if !sites.functions.contains(&site) {
            sites.returns.insert(site);
        }
    }
    let stalls = tracer.holds.stalling() && {
        let sites = tracer.sites.read().unwrap_or_else(PoisonError::into_inner);
        sites.returns.contains(&start)
    };
    let holds = if tracer.holds.wanted() { hold_sites(tracer, &insns, exit) } else { Box::default() };
    let block = tracer.control_in_translation().block(generation, start, &bytes, |number| Block {
        number,
        address: start,
        resumes: AtomicU8::new(0),
        leave: insns.last().and_then(|last| leave(tracer, exit, last)),
        ports: ports(&insns),
        sites: sites(number, view, &insns, exit, &holds),
        holds,
        approaches: tracer.holds.approaches(start),
        gated: if tracer.gate.is_some() { gate_sites::sites(&insns, true) } else { Box::default() },
        stalls,
    });
    instrument(view, &insns, exit, block);
}

/// Registers the callbacks of a driver block.
fn instrument(view: &View, insns: &[Instruction], exit: Exit, block: &'static Block) {
    let block_data = address(block);
    let (begin, flags): (VcpuCb, _) = match block.holds.first() {
        _ if block.stalls || !block.approaches.is_empty() => (holds::on_block, CB_RW_REGS_PC),
        Some(site) if site.index == 0 => (holds::on_block, CB_RW_REGS_PC),
        _ => (blocks::on_block, CB_R_REGS),
    };
    view.call(begin, flags, block_data);
    let last = view.len() - 1;
    for (i, site) in block.sites.iter().enumerate() {
        let handle = view.insn(i);
        if let Some(held) = block.holds.iter().find(|held| i > 0 && usize::from(held.index) == i) {
            let data = address(held);
            handle.call(holds::on_instruction, CB_RW_REGS_PC, data);
        }
        if let Some(port) = block.ports.iter().find(|p| usize::from(p.index) == i) {
            handle.call(accesses::on_port, CB_R_REGS, address(port));
        }
        if matches!(insns.get(i).map(code::special), Some(Special::Rep | Special::Port { rep: true, .. })) {
            handle.call(accesses::on_rep, CB_R_REGS, i);
        }
        // This callback follows the instruction's records, so that the access waits until they are
        // checked too.
        if let Some(gated) = block.gated.iter().find(|gated| usize::from(gated.index) == i) {
            handle.call(gate::on_site, CB_RW_REGS_PC, address(gated));
        }
        if i == last {
            match exit {
                Exit::Call(..) | Exit::Jump(_) => handle.call(accesses::on_leave, CB_R_REGS, block_data),
                Exit::ReturnThunk => handle.call(accesses::on_return_thunk, CB_R_REGS, 0),
                Exit::MaybeJump(_) | Exit::Far => handle.call(accesses::on_silent_leave, CB_NO_REGS, 0),
                Exit::Stays | Exit::Return => {}
            }
        }
        // The segment is closed before a far transfer, and no event reports its accesses to the stack.
        if i != last || exit != Exit::Far {
            accesses(handle, site);
        }
    }
}

/// Decides what the memory callbacks of a block's instructions do.
fn sites(block: u64, view: &View, insns: &[Instruction], exit: Exit, holds: &[HoldSite]) -> Box<[MemSite]> {
    let last = view.len() - 1;
    let site = |i: usize| {
        let mut flags = match insns.get(i).map_or(Special::None, code::special) {
            Special::Locked if i != last => MemFlags::LOCKED | MemFlags::ATOMIC,
            Special::Locked => MemFlags::ATOMIC,
            Special::Rep | Special::Port { rep: true, .. } => MemFlags::DEVICES_ONLY,
            _ => 0,
        };
        if i == last {
            flags |= leave_flags(exit);
        }
        if insns.get(i).is_some_and(code::only_stack) {
            flags |= MemFlags::STACK;
        }
        if holds.iter().any(|held| usize::from(held.index) == i) {
            flags |= MemFlags::HELD;
        }
        MemSite { block, address: view.insn(i).address(), index: i as u16, flags }
    };
    (0..=last).map(site).collect()
}

/// The instructions that can be held. The last instruction of a block that leaves the driver cannot,
/// because its transfer is already logged.
fn hold_sites(tracer: &Tracer, insns: &[Instruction], exit: Exit) -> Box<[HoldSite]> {
    let end = if exit == Exit::Stays { insns.len() } else { insns.len().saturating_sub(1) };
    let site = |(index, insn): (u16, &Instruction)| {
        let (roles, sampled) = tracer.holds.at(insn.ip());
        // A stack belongs to its own context, and locked accesses do not race.
        let sampled = sampled && code::special(insn) == Special::None && insn.memory_base() != Register::RSP;
        let operand = if roles.is_empty() && !sampled { None } else { code::operand(insn) }?;
        let flags = code::flags(insns, usize::from(index));
        Some(HoldSite { address: insn.ip(), index, insn: *insn, operand, flags, roles, sampled })
    };
    (0u16..).zip(&insns[..end]).filter_map(site).collect()
}

/// What the memory callback of the last instruction does.
fn leave_flags(exit: Exit) -> u16 {
    match exit {
        Exit::Call(..) => MemFlags::LEAVE_AFTER_STORE,
        Exit::Jump(Target::Memory) => MemFlags::LEAVE_AFTER_LOAD,
        Exit::Return => MemFlags::RETURN,
        _ => 0,
    }
}

fn leave(tracer: &Tracer, exit: Exit, last: &Instruction) -> Option<Leave> {
    let (jump, target) = match exit {
        Exit::Call(target, _) => (false, target),
        Exit::Jump(target) => (true, target),
        _ => return None,
    };
    let args = match target {
        Target::Direct(to) => tracer.arguments(to),
        _ => MAX_ARGS as u8,
    };
    Some(Leave { jump, target, args, insn: *last, last: jump && target != Target::Memory })
}

fn ports(insns: &[Instruction]) -> Box<[Port]> {
    let port = |(i, insn)| match code::special(insn) {
        Special::Port { size, out, port, .. } => {
            Some(Port { index: i, small: size | if out { 0x80 } else { 0 }, port })
        }
        _ => None,
    };
    (0u16..).zip(insns).filter_map(port).collect()
}

/// Whether a block may go back: it ends with a return, a jump to a lower address, or one whose target is not in the code.
/// Whatever runs for long runs such blocks, or functions of the kernel at whose entry writes arrive. A conditional
/// callback would be cheaper, but with those at the start of most blocks, stock kernels crash now and then (QEMU 11.1.3;
/// also where the callback does nothing).
fn goes_back(view: &View) -> bool {
    let last = view.insn(view.len() - 1);
    let insn = code::decode(last.address(), &last.bytes());
    insn.first().is_none_or(|insn| match insn.flow_control() {
        FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => false,
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            insn.near_branch_target() <= insn.ip()
        }
        _ => true,
    })
}

/// Whether these bytes are `hlt` or `mwait`, at which a CPU idles.
fn is_idle(bytes: &[u8]) -> bool {
    matches!(bytes, [0xf4, ..] | [0x0f, 0x01, 0xc9, ..])
}

/// The data of an instruction before which all writes must have arrived. QEMU seldom translates one again.
fn arrival(at: u64, flags: Flags) -> usize {
    address(Box::leak(Box::new(gate::Arrival { address: at, flags })))
}

/// The callback data for a value that is never freed: its address.
fn address<T: ?Sized>(of: &'static T) -> usize {
    std::ptr::from_ref(of).cast::<()>() as usize
}

/// Registers the callback after each access of a driver instruction.
fn accesses(insn: InsnView, site: &'static MemSite) {
    let data = address(site);
    // The callback of a return logs its function's result.
    let flags = if site.flags & MemFlags::RETURN != 0 { CB_R_REGS } else { CB_NO_REGS };
    insn.accesses(accesses::on_access, flags, ffi::MEM_RW, data);
}
