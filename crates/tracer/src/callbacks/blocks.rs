//! Callbacks at the start of driver blocks: they log blocks, entries into the driver, and threads.

use super::stacks;
use crate::state::{
    Block, GS_BASE, INTERRUPT_FLAG, PerCpuAddresses, RAX, RFLAGS, RSP, Resumes, Tracer, Vcpu, global, tracer,
    word,
};
use guardrail_plugin::with_env;
use guardrail_trace::event::{EnterFlags, Global, Head, Kind, MAX_ARGS, ThreadFlags};
use std::ffi::{c_uint, c_void};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

/// Flag in `task_struct::flags` of kernel threads (include/linux/sched.h).
const PF_KTHREAD: u64 = 0x0020_0000;

/// Words up to which blocks share a segment, where vCPUs share a thread. More words make segments
/// cheaper; fewer words let the analysis begin while the driver runs.
const TOGETHER: u64 = 96;

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
    (vcpu.logged, vcpu.passed) = (None, None);
    if vcpu.left {
        enter(tracer, vcpu, block);
    } else if tracer.single() {
        vcpu.writer.go_on(TOGETHER);
    } else {
        vcpu.writer.begin();
    }
    vcpu.writer.push(Head::encode(Kind::Block, 0, block.number));
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
    let (mut words, mut stack) = ([0; 5 + MAX_ARGS + 2], Vec::new());
    words[1..5].copy_from_slice(&[task, rsp, vcpu.reg(RAX), u64::from(pid)]);
    let mut len = 5;
    if flags.0 & EnterFlags::ARGS != 0 {
        words[5..5 + MAX_ARGS].copy_from_slice(&vcpu.args());
        let ret = top_of_stack(tracer, vcpu, (task, pid), rsp).unwrap_or(0);
        words[5 + MAX_ARGS] = ret;
        len += MAX_ARGS + 1;
        if let Some(number) = stacks::above(tracer, vcpu, (task, pid), (rsp, ret), &mut stack) {
            flags.0 |= EnterFlags::STACK;
            words[len] = number;
            len += 1;
        }
    }
    words[0] = Head::encode(Kind::Enter, flags.0, u64::from(preempt_count));
    vcpu.left = false;
    vcpu.writer.begin();
    log_gs_base(vcpu);
    vcpu.writer.push_slice(&stack);
    vcpu.writer.push_slice(&words[..len]);
}

/// Logs the GS base of a vCPU once, in an open segment of its own ring.
#[inline]
pub fn log_gs_base(vcpu: &mut Vcpu) {
    if !std::mem::replace(&mut vcpu.gs_logged, true) {
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
pub fn top_of_stack(tracer: &Tracer, vcpu: &mut Vcpu, thread: (u64, u32), rsp: u64) -> Option<u64> {
    if tracer.ram.known()
        && rsp & 7 == 0
        && let Some(physical) = vcpu.translate_stack(thread, rsp)
        && let Some(word) = tracer.ram.word(physical, 8)
    {
        return Some(word);
    }
    vcpu.read_word(rsp, 8)
}

/// Reads the current task and `preempt_count` of the vCPU.
pub fn context(tracer: &Tracer, vcpu: &mut Vcpu) -> (u64, u32) {
    let generation = tracer.generation.load(Relaxed);
    let addresses = match vcpu.per_cpu {
        Some((found_in, addresses)) if found_in == generation => addresses,
        _ => {
            let layout = &tracer.config.per_cpu;
            let slide = if layout.relative { tracer.slide().unwrap_or(0) } else { 0 };
            let base = vcpu.reg(GS_BASE).wrapping_add(slide);
            let current = vcpu.translate(base.wrapping_add(layout.current));
            let preempt_count = vcpu.translate(base.wrapping_add(layout.preempt_count));
            let (Some(current), Some(preempt_count)) = (current, preempt_count) else {
                return (0, 0);
            };
            let addresses = PerCpuAddresses { current, preempt_count };
            vcpu.per_cpu = Some((generation, addresses));
            addresses
        }
    };
    if let (Some(task), Some(count)) =
        (tracer.ram.word(addresses.current, 8), tracer.ram.word(addresses.preempt_count, 4))
    {
        return (task, count as u32);
    }
    // In most kernels the two lie close together, and one read costs half as much as two.
    let distance = addresses.preempt_count.wrapping_sub(addresses.current);
    if (8..256).contains(&distance)
        && let Some(bytes) = vcpu.read_physical(addresses.current, distance as usize + 4)
    {
        return (word(&bytes[..8]), word(&bytes[distance as usize..]) as u32);
    }
    let task = vcpu.read_physical_word(addresses.current, 8).unwrap_or(0);
    (task, vcpu.read_physical_word(addresses.preempt_count, 4).unwrap_or(0) as u32)
}

/// Reads the pid of a task, and logs the thread when it is new.
pub fn thread(tracer: &Tracer, vcpu: &mut Vcpu, task: u64) -> u32 {
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
        let comm = comm.map_or([0; 2], |c| [word(&c[..8]), word(&c[8..])]);
        let flags = tracer.config.task.flags.and_then(|flags| vcpu.read_word(task.wrapping_add(flags), 4));
        let kind = flags
            .map_or(0, |flags| if flags & PF_KTHREAD != 0 { ThreadFlags::KERNEL } else { ThreadFlags::USER });
        tracer.control(vcpu).thread(task, pid, kind, comm);
    }
    pid
}
