//! Callbacks of instrumented code: they log blocks, accesses, calls and hooks while the guest runs.

use crate::code::{self, Target};
use crate::control::{Block, Leave, MemSite, Port, Resumes};
use crate::holds;
use crate::lists;
use crate::tracer::{Tracer, global, tracer};
use crate::vcpu::{self, GS_BASE, INTERRUPT_FLAG, PerCpuPlaces, RAX, RCX, RDI, RDX, RFLAGS, RSI, RSP, Vcpu};
use guardrail_plugin::ffi;
use guardrail_plugin::with_env;
use guardrail_trace::config::{Hook, ListWalk};
use guardrail_trace::event::{Access, EnterFlags, Global, Head, Kind, MAX_ARGS, ThreadFlags};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

/// Flag in `task_struct::flags` of kernel threads (include/linux/sched.h).
const PF_KTHREAD: u64 = 0x0020_0000;

/// Most values that one hook reads through its arguments.
pub const MAX_DEREFS: usize = 64;

/// Words up to which blocks share a segment, where vCPUs share a thread. More words make segments
/// cheaper; fewer words let the analysis begin while the driver runs.
const TOGETHER: u64 = 96;

/// Bits that say what a memory callback does besides logging the access.
pub struct MemFlags;

impl MemFlags {
    /// Log accesses to devices only.
    pub const DEVICES_ONLY: u16 = 1;
    /// The instruction's store begins a new order point.
    pub const LOCKED: u16 = 2;
    /// The driver is left after the instruction's store.
    pub const LEAVE_AFTER_STORE: u16 = 4;
    /// The driver is left after the instruction's load, unless the load is a jump table's.
    pub const LEAVE_AFTER_LOAD: u16 = 8;
    /// The instruction's load is a return address.
    pub const RETURN: u16 = 16;
    /// The instruction can be held.
    pub const HELD: u16 = 32;
    /// The instruction locks the bus.
    pub const ATOMIC: u16 = 64;
    /// The instruction accesses only the stack.
    pub const STACK: u16 = 128;
    const ANY_SPECIAL: u16 =
        Self::LOCKED | Self::LEAVE_AFTER_STORE | Self::LEAVE_AFTER_LOAD | Self::RETURN | Self::HELD;
}

with_env! {
    /// A driver block begins.
    on_block => block_begins
}

extern "C" fn block_begins(index: c_uint, block: *mut c_void, env: *mut u64) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback, and blocks are never freed.
    let (Some(vcpu), block) = (unsafe { (tracer.running_at(index, env), &*block.cast::<Block>()) }) else {
        return;
    };
    begin_block(tracer, vcpu, block);
}

/// Logs that the block begins, in the open segment or a new one.
#[inline]
pub fn begin_block(tracer: &Tracer, vcpu: &mut Vcpu, block: &'static Block) {
    vcpu.block = Some(block);
    vcpu.cut = None;
    (vcpu.told, vcpu.passed) = (None, None);
    if vcpu.left {
        enter(tracer, vcpu, block);
    } else if tracer.single() {
        vcpu.writer.go_on(TOGETHER);
    } else {
        vcpu.writer.begin();
    }
    vcpu.writer.push(Head::encode(Kind::Block, 0, block.number));
}

/// A method that finds the vCPU of a callback: [`Tracer::running`] or a similar one.
pub type Find = unsafe fn(&Tracer, u32) -> Option<&'static mut Vcpu>;

/// Returns the vCPU of a callback, and the data from its registration.
///
/// # Safety
/// The caller is a callback for this vCPU, and `data` points to a `T` that is never freed.
#[inline(always)]
pub unsafe fn with_vcpu<T>(
    find: Find,
    index: u32,
    data: *mut c_void,
) -> Option<(&'static mut Vcpu, &'static T)> {
    // SAFETY: passed on to the caller.
    unsafe { Some((find(tracer()?, index)?, &*data.cast::<T>())) }
}

/// Begins a segment with the record of an entry into the driver.
fn enter(tracer: &Tracer, vcpu: &mut Vcpu, block: &Block) {
    let rsp = vcpu.reg(RSP);
    let mut flags = EnterFlags(0);
    if vcpu.reg(RFLAGS) & INTERRUPT_FLAG != 0 {
        flags.0 |= EnterFlags::INTERRUPTS_ON;
    }
    if std::mem::take(&mut vcpu.interrupted) {
        flags.0 |= EnterFlags::INTERRUPTED;
    }
    if !tracer.take_interrupted(block.address, rsp) && !is_return_site(tracer, block) {
        flags.0 |= EnterFlags::ARGS;
    }
    let (task, preempt_count) = context(tracer, vcpu);
    let pid = thread(tracer, vcpu, task);
    let mut words = [0; 5 + MAX_ARGS + 1];
    words[0] = Head::encode(Kind::Enter, flags.0, u64::from(preempt_count));
    words[1..5].copy_from_slice(&[task, rsp, vcpu.reg(RAX), u64::from(pid)]);
    let mut len = 5;
    if flags.0 & EnterFlags::ARGS != 0 {
        words[5..5 + MAX_ARGS].copy_from_slice(&vcpu.args());
        words[5 + MAX_ARGS] = top_of_stack(tracer, vcpu, (task, pid), rsp).unwrap_or(0);
        len = words.len();
    }
    vcpu.left = false;
    vcpu.writer.begin();
    tell_gs_base(vcpu);
    vcpu.writer.push_slice(&words[..len]);
}

/// Logs the GS base of a vCPU once, in an open segment of its own ring.
#[inline]
fn tell_gs_base(vcpu: &mut Vcpu) {
    if !std::mem::replace(&mut vcpu.gs_told, true) {
        let base = vcpu.reg(GS_BASE);
        vcpu.writer.push_slice(&global(Global::GsBase, base));
    }
}

fn is_return_site(tracer: &Tracer, block: &Block) -> bool {
    match block.resumes.load(Relaxed) {
        Resumes::NEVER => return false,
        Resumes::CAN => return true,
        _ => {}
    }
    let sites = tracer.sites.read().unwrap_or_else(PoisonError::into_inner);
    let known = sites.returns.contains(&block.address);
    if known {
        block.resumes.store(Resumes::CAN, Relaxed);
    } else if sites.functions.contains(&block.address) {
        // A function's first block is not a return site, and never becomes one.
        block.resumes.store(Resumes::NEVER, Relaxed);
    }
    known
}

/// Reads the word at rsp. At the entry of a function it is the return address.
fn top_of_stack(tracer: &Tracer, vcpu: &mut Vcpu, thread: (u64, u32), rsp: u64) -> Option<u64> {
    if tracer.ram.known()
        && rsp & 7 == 0
        && let Some(physical) = vcpu.translate_stack(thread, rsp)
        && let Some(word) = tracer.ram.word(physical, 8)
    {
        return Some(word);
    }
    vcpu.read_word(rsp, 8)
}

/// Reads up to eight bytes of guest memory, zero-extended. Addresses in the direct map need no page
/// walk.
fn read_word(tracer: &Tracer, vcpu: &mut Vcpu, at: u64, len: usize) -> Option<u64> {
    let physical = at.wrapping_sub(tracer.direct_map.load(Relaxed));
    tracer.ram.word(physical, len).or_else(|| vcpu.read_word(at, len))
}

/// Reads the current task and `preempt_count` of the vCPU.
pub fn context(tracer: &Tracer, vcpu: &mut Vcpu) -> (u64, u32) {
    let generation = tracer.generation.load(Relaxed);
    let places = match vcpu.per_cpu {
        Some((found_in, places)) if found_in == generation => places,
        _ => {
            let layout = &tracer.config.per_cpu;
            let slide = if layout.relative { tracer.slide().unwrap_or(0) } else { 0 };
            let base = vcpu.reg(GS_BASE).wrapping_add(slide);
            let current = vcpu.translate(base.wrapping_add(layout.current));
            let preempt_count = vcpu.translate(base.wrapping_add(layout.preempt_count));
            let (Some(current), Some(preempt_count)) = (current, preempt_count) else {
                return (0, 0);
            };
            let places = PerCpuPlaces { current, preempt_count };
            vcpu.per_cpu = Some((generation, places));
            places
        }
    };
    if let (Some(task), Some(count)) =
        (tracer.ram.word(places.current, 8), tracer.ram.word(places.preempt_count, 4))
    {
        return (task, count as u32);
    }
    // In most kernels the two lie close together, and one read costs half as much as two.
    let distance = places.preempt_count.wrapping_sub(places.current);
    if (8..256).contains(&distance)
        && let Some(bytes) = vcpu.read_physical(places.current, distance as usize + 4)
    {
        return (vcpu::word(&bytes[..8]), vcpu::word(&bytes[distance as usize..]) as u32);
    }
    let task = vcpu.read_physical_word(places.current, 8).unwrap_or(0);
    (task, vcpu.read_physical_word(places.preempt_count, 4).unwrap_or(0) as u32)
}

/// Reads the pid of a task, and logs the thread when it is new.
fn thread(tracer: &Tracer, vcpu: &mut Vcpu, task: u64) -> u32 {
    let at = task.wrapping_add(tracer.config.task.pid);
    // Tasks lie in the direct map, which needs no page walk. Only the idle task of the first CPU lies
    // elsewhere, and its pid never changes.
    let physical = at.wrapping_sub(tracer.direct_map.load(Relaxed));
    if physical >= 1 << 46
        && let Some(&pid) = vcpu.tasks.get(&task)
    {
        return pid;
    }
    let pid = match tracer.ram.word(physical, 4) {
        Some(pid) => Some(pid),
        None if physical < 1 << 46 => vcpu.read_physical_word(physical, 4),
        None => vcpu.read_word(at, 4),
    };
    let pid = pid.unwrap_or(0) as u32;
    if vcpu.tasks.get(&task) != Some(&pid) {
        vcpu.tasks.insert(task, pid);
        let comm = vcpu.read(task.wrapping_add(tracer.config.task.comm), 16);
        let comm = comm.map_or([0; 2], |c| [vcpu::word(&c[..8]), vcpu::word(&c[8..])]);
        let flags = tracer.config.task.flags.and_then(|flags| vcpu.read_word(task.wrapping_add(flags), 4));
        let kind = flags
            .map_or(0, |flags| if flags & PF_KTHREAD != 0 { ThreadFlags::KERNEL } else { ThreadFlags::USER });
        tracer.control(vcpu).thread(task, pid, kind, comm);
    }
    pid
}

/// Memory callback: a driver instruction has accessed memory.
pub extern "C" fn on_access(index: c_uint, info: u32, vaddr: u64, site: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback, and blocks and their sites are never freed.
    let Some((vcpu, site)) = (unsafe { with_vcpu::<MemSite>(Tracer::same, index, site) }) else { return };
    // SAFETY: queries about the access at hand.
    let (store, shift) =
        unsafe { (ffi::qemu_plugin_mem_is_store(info), ffi::qemu_plugin_mem_size_shift(info)) };
    let io = site.flags & MemFlags::STACK == 0 && tracer.may_be_device(vaddr) && is_device(info, vaddr);
    let insn = match vcpu.block {
        Some(block) if block.number == site.block => site.index,
        block => match block.and_then(|block| cut(vcpu, block, site)) {
            Some(insn) => insn,
            None => {
                return tracer.give_up(&format!(
                    "QEMU reported an access by {:#x}, outside the block at {:#x} that had begun",
                    site.address,
                    vcpu.block.map_or(0, |b| b.address)
                ));
            }
        },
    };
    let access = Access { addr: vaddr, size: 1 << shift.min(6), store, io, insn };
    let told = io && vcpu.told.take_if(|told| *told == insn).is_some();
    if !told && (io || site.flags & MemFlags::DEVICES_ONLY == 0) {
        vcpu.writer.push(access.encode());
    }
    if io && vcpu.passed != Some(insn) {
        tracer.got_around();
    }
    if tracer.holds.watching() {
        holds::run::watch(tracer, vcpu, site, access);
    }
    if site.flags & MemFlags::ANY_SPECIAL != 0 {
        after_special(tracer, vcpu, info, site.flags, store);
    }
}

/// Handles an access from a block whose beginning was not reported. It returns the index of the
/// instruction in the block that began.
///
/// When an instruction in the middle of a block accesses a device, QEMU abandons the block there. It
/// then runs the instruction in a block of its own, with memory callbacks only.
#[cold]
fn cut(vcpu: &mut Vcpu, block: &Block, site: &MemSite) -> Option<u16> {
    let insn = block.sites.iter().find(|s| s.address == site.address)?.index;
    if !vcpu.writer.is_open() {
        // The translation of the block with one instruction has closed the segment.
        vcpu.writer.begin_continuation();
    }
    if vcpu.cut != Some(insn) {
        vcpu.cut = Some(insn);
        vcpu.writer.push(Head::encode(Kind::Cut, 0, u64::from(insn) + 1));
    }
    Some(insn)
}

fn is_device(info: u32, vaddr: u64) -> bool {
    // SAFETY: queries about the access at hand.
    unsafe {
        let place = ffi::qemu_plugin_get_hwaddr(info, vaddr);
        // QEMU forgets the target of an access only if the access changed the memory map. Only a device
        // register does that.
        place.is_null() || ffi::qemu_plugin_hwaddr_is_io(place)
    }
}

fn after_special(tracer: &Tracer, vcpu: &mut Vcpu, info: u32, flags: u16, store: bool) {
    if flags & MemFlags::HELD != 0 {
        holds::run::ran(tracer, vcpu, store);
    }
    if flags & MemFlags::LOCKED != 0 && store {
        vcpu.writer.begin_continuation();
    }
    if flags & MemFlags::LEAVE_AFTER_STORE != 0 && store {
        leave(vcpu);
    }
    if flags & MemFlags::LEAVE_AFTER_LOAD != 0 && !store && vcpu.left {
        vcpu.writer.close();
    }
    if flags & MemFlags::RETURN != 0 && !store {
        // SAFETY: a query about the access at hand.
        let to = unsafe { ffi::qemu_plugin_mem_get_value(info) }.low;
        if !tracer.watched.contains(to) {
            leave_by_return(vcpu);
        }
    }
}

/// Logs that a driver function returns to the kernel, with its result, and ends the segment.
fn leave_by_return(vcpu: &mut Vcpu) {
    let result = vcpu.reg(RAX);
    vcpu.writer.push_slice(&[Head::encode(Kind::Return, 0, 0), result]);
    leave(vcpu);
}

fn leave(vcpu: &mut Vcpu) {
    vcpu.left = true;
    vcpu.writer.close();
}

/// Callback before a driver block leaves the driver by a call or jump, or jumps through a register or
/// memory.
pub extern "C" fn on_leave(index: c_uint, block: *mut c_void) {
    // SAFETY: this is the vCPU's callback, and blocks are never freed.
    let (Some(tracer), Some((vcpu, block))) =
        (tracer(), unsafe { with_vcpu::<Block>(Tracer::same, index, block) })
    else {
        return;
    };
    let Some(at) = &block.leave else { return };
    let target = match at.target {
        Target::Direct(target) => Some(target),
        Target::Register(register) => Some(vcpu.reg(usize::from(register))),
        Target::Memory => memory_target(vcpu, at),
    };
    // Where the operand cannot be read, the instruction faults instead of leaving.
    let Some(target) = target else { return };
    if at.jump
        && at.target == Target::Memory
        && tracer.watched.contains(target)
        && !is_function(tracer, target)
    {
        // A jump through a table stays in the driver, and the next block logs where it arrives.
        return;
    }
    let mut words = [0; 2 + MAX_ARGS];
    words[0] = Head::encode(Kind::Call, u8::from(at.jump), target);
    words[1] = vcpu.reg(RSP);
    for (word, register) in words[2..].iter_mut().zip(vcpu::ARGS).take(usize::from(at.args)) {
        *word = vcpu.reg(register);
    }
    vcpu.writer.push_slice(&words);
    vcpu.left = true;
    if at.last {
        vcpu.writer.close();
    }
}

fn memory_target(vcpu: &mut Vcpu, at: &Leave) -> Option<u64> {
    let address = code::operand_address(&at.insn, |r| vcpu.reg(r));
    vcpu.read_word(address, 8)
}

fn is_function(tracer: &Tracer, addr: u64) -> bool {
    tracer.sites.read().unwrap_or_else(PoisonError::into_inner).functions.contains(&addr)
}

/// Callback at the end of a driver block after which other code may run, without a record of its own.
pub extern "C" fn on_silent_leave(index: c_uint, _: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback.
    let Some(vcpu) = (unsafe { tracer.same(index) }) else { return };
    leave(vcpu);
}

/// Callback before a driver block jumps to a return thunk.
pub extern "C" fn on_return_thunk(index: c_uint, _: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback.
    let Some(vcpu) = (unsafe { tracer.same(index) }) else { return };
    let rsp = vcpu.reg(RSP);
    if !vcpu.read_word(rsp, 8).is_some_and(|to| tracer.watched.contains(to)) {
        leave_by_return(vcpu);
    }
}

/// Callback before a port access.
pub extern "C" fn on_port(index: c_uint, port: *mut c_void) {
    // SAFETY: this is the vCPU's callback, and blocks are never freed.
    let Some((vcpu, port)) = (unsafe { with_vcpu::<Port>(Tracer::same, index, port) }) else { return };
    let number = port.port.map_or_else(|| vcpu.reg(RDX) & 0xffff, u64::from);
    vcpu.writer.push(Head::encode(Kind::Port, port.small, u64::from(port.index) << 16 | number));
}

/// Callback before a repeated string instruction.
pub extern "C" fn on_rep(index: c_uint, insn: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback.
    let Some(vcpu) = (unsafe { tracer.same(index) }) else { return };
    let head = Head::encode(Kind::Rep, 0, insn as u64);
    let words = [head, vcpu.reg(RCX), vcpu.reg(RSI), vcpu.reg(RDI)];
    vcpu.writer.push_slice(&words);
}

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
    for register in &vcpu::ARGS[..count] {
        words[len] = vcpu.reg(*register);
        len += 1;
    }
    for deref in hook.derefs.iter().take(MAX_DEREFS) {
        let arg = usize::from(deref.arg) % MAX_ARGS;
        let pointer = if arg < count { words[4 + arg] } else { vcpu.reg(vcpu::ARGS[arg]) };
        let at = pointer.wrapping_add(deref.offset);
        words[len] = read_word(tracer, vcpu, at, usize::from(deref.size)).unwrap_or(0);
        len += 1;
    }
    let (mut lists, mut kept) = (Vec::new(), None);
    if !hook.lists.is_empty() {
        let args = vcpu.args();
        kept = hook.lists.iter().any(|list| list.at_return).then_some(args);
        lists = read_lists(vcpu, hook, number as u32, rsp, &args, |list| list.at_entry);
    }
    if hook.result {
        tracer.hooked.enter(number as u32, rsp, kept);
    }
    vcpu.writer.begin();
    tell_gs_base(vcpu);
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

/// Callback for an interrupt or exception. QEMU's big lock is held, so it never waits.
///
/// QEMU reports an exception twice. The first report arrives when the instruction raises it, before the
/// handler is known. The second arrives when the handler is about to run, as an interrupt somewhere
/// after the instruction. The log has the exception once.
pub extern "C" fn on_discontinuity(index: c_uint, kind: c_int, from: u64, to: u64, _: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    tracer.learn(index, from);
    // SAFETY: this is the vCPU's callback.
    let Some(vcpu) = (unsafe { tracer.named(index) }) else { return };
    let raised = vcpu.raised.take();
    if kind == ffi::DISCON_EXCEPTION && tracer.watched.contains(from) && tracer.watched.contains(to) {
        vcpu.raised = Some(from);
        return;
    }
    let exception = kind == ffi::DISCON_EXCEPTION || raised.is_some();
    // If the second report names driver code, it names the very instruction.
    let from = if tracer.watched.contains(from) { from } else { raised.unwrap_or(from) };
    // Until the driver's first instruction runs again, the interrupted code is the other code.
    if !tracer.watched.contains(from) || vcpu.left {
        return;
    }
    let cr2 = if exception { vcpu.reg(vcpu::CR2) } else { 0 };
    let kind = if exception { ffi::DISCON_EXCEPTION } else { kind };
    vcpu.writer.begin_urgent();
    vcpu.writer.push_urgent(&[Head::encode(Kind::Discontinuity, kind as u8, from), to, cr2]);
    vcpu.writer.close();
    vcpu.left = true;
    vcpu.interrupted = true;
    // The CPU has pushed (an error code and) rip, cs, rflags, rsp, ss.
    let frame = vcpu.reg(RSP);
    if let Some(bytes) = vcpu.read(frame, 40) {
        let saved = |i: usize| vcpu::word(&bytes[i * 8..]);
        let rsp = if saved(0) == from { saved(3) } else { saved(4) };
        tracer.note_interrupted(from, rsp, exception);
    }
}

/// Callback when a vCPU becomes idle or exits.
pub extern "C" fn on_pause(index: c_uint, _: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback.
    if let Some(vcpu) = unsafe { tracer.named(index) } {
        vcpu.writer.close();
    }
}
