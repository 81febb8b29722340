//! DMACheck: memory that is lent to a device is the device's until it is taken back.
//!
//! Policy, where the log does not say enough:
//! - The checker follows the mappings of all callers, to distinguish addresses. It judges only what the
//!   driver does, or what is done in the driver's calls.
//! - From the mapping on, the device counts as using the memory. This ends when the memory is unmapped or
//!   handed to the CPU with `dma_sync_*_for_cpu`. What the device really does is not seen.
//! - A write is reported, but taken back where `dma_sync_*_for_device` of the written bytes follows. The
//!   driver then hands the bytes over, as drivers do that chain descriptors in buffers of the device.
//! - Only accesses of the driver itself are seen. Those of the kernel to the same memory are not.
//! - Since 6.10 `dma_sync_*` are inline functions. Where the device needs no synchronization, they do nothing
//!   and cannot be seen. The driver's read of `dev->dma_skip_sync` is seen: after it, all memory that was
//!   mapped for the device before may have been handed over. Accesses to that memory are no longer judged. A
//!   guest with `swiotlb=force` makes every such call.
//! - Where a driver may leave out unmapping (`dma_need_unmap`), mappings of its device are not followed.
//! - Caches of x86 are coherent: misaligned buffers are reported only where a line size is given
//!   (`dmacheck:line=64`).

mod lists;
mod maps;
mod memory;
mod streaming;
mod sync;
mod text;
mod told;
mod touch;
mod unchecked;
mod uninit;

use crate::checker::{Checker, Cx, Draft, Hooked, PassedList, Site};
use crate::level::Level;
use crate::machine::{Context, Object, ObjectId, Out};
use crate::stacks::STACK_SIZE;
use crate::value_flow::{InsnCtx, Regs, RepRange, Value};
use guardrail_finding::Severity;
use guardrail_knowledge::effect::{DmaOp, Effect, Len, Summary};
use guardrail_knowledge::role::Role;
use guardrail_trace::event::Access;
use maps::Maps;
use memory::Memory;
use rustc_hash::FxHashMap;
use unchecked::Unchecked;

const NAME: &str = "dmacheck";
/// Bytes of a cache line of x86.
const LINE: u64 = 64;
/// Most open calls, devices, and buffers passed to `dma_map_single`; more are not followed.
const MAX_OPEN: usize = 1 << 12;
const MAX_DEVICES: usize = 1 << 12;
/// Bytes of stack within which a function counts as called by another one of its class.
const NESTING: u64 = 512;

/// What is known about a device.
#[derive(Clone, Copy, Debug, Default)]
struct Device {
    /// The driver maps memory for it.
    driver: bool,
    /// Its mappings need not be unmapped.
    no_unmap: bool,
    /// It has mappings that are not followed.
    other: bool,
    /// Mappings up to this serial number may have been synchronized unseen.
    synced: u64,
}

/// A call that has not returned yet.
#[derive(Clone, Debug)]
struct Open {
    hook: Hooked,
    /// The level of the caller's context: an interrupt's call is no part of what it interrupts.
    level: Option<Level>,
    class: u8,
}

/// The checker's state.
#[derive(Debug, Default)]
pub struct DmaCheck {
    /// The size of cache lines in bytes; `None` where alignment is not judged.
    line: Option<u64>,
    maps: Maps,
    devices: FxHashMap<u64, Device>,
    /// The devices, by the address of their `dma_skip_sync` byte.
    skip_bytes: FxHashMap<u64, u64>,
    /// Reads of this byte that may turn out to be part of a call. The value is the device, and the serial
    /// number up to which it was synchronized before.
    looks: FxHashMap<(u64, Level), (u64, u64)>,
    open: Vec<Open>,
    /// The address of the buffer that a context is about to map.
    asked: FxHashMap<(u64, Level), u64>,
    /// Reported writes that a synchronization may still justify.
    doubts: Vec<touch::Doubt>,
    /// Reported buffers that held nothing when they were mapped.
    empty: Vec<uninit::Empty>,
    told: told::Told,
    lists: lists::Pending,
    memory: Memory,
    unchecked: Unchecked,
}

/// The `i`th argument of a call; 0 where the log does not hold it.
fn arg(args: &[u64], i: u8) -> u64 {
    args.get(usize::from(i)).copied().unwrap_or(0)
}

fn length(args: &[u64], len: Len) -> u64 {
    crate::machine::length(len, args).unwrap_or(0)
}

/// The class of an operation. Functions of one class call each other; the outermost one counts.
fn class(op: &DmaOp) -> u8 {
    match op {
        DmaOp::Map { .. } => 1,
        DmaOp::Unmap { .. } => 2,
        DmaOp::MapList { .. } => 3,
        DmaOp::UnmapList { .. } => 4,
        DmaOp::SyncSingle { .. } => 5,
        DmaOp::SyncList { .. } => 6,
        DmaOp::AllocCoherent { .. } | DmaOp::PoolAlloc { .. } | DmaOp::CreatePool { .. } => 7,
        DmaOp::FreeCoherent { .. } | DmaOp::PoolFree { .. } | DmaOp::DestroyPool { .. } => 8,
        DmaOp::MapIo => 9,
        DmaOp::UnmapIo { .. } => 10,
        _ => 11,
    }
}

fn operation(summary: &Summary) -> Option<&DmaOp> {
    summary.effects.iter().find_map(|effect| match effect {
        Effect::Dma(op) => Some(op),
        _ => None,
    })
}

fn same_block(a: u64, b: u64) -> bool {
    a & !(STACK_SIZE - 1) == b & !(STACK_SIZE - 1)
}

impl DmaCheck {
    /// The checker with the options of a tool name; `None` where they are not known. `line=N` judges
    /// alignment to lines of N bytes.
    pub fn with_options(options: &str) -> Option<DmaCheck> {
        let mut check = DmaCheck::default();
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let line: u64 = option.strip_prefix("line=")?.parse().ok()?;
            check.line = Some(line).filter(|line| line.is_power_of_two() && *line <= 4096);
            check.line?;
        }
        Some(check)
    }

    /// A call begins. Returns false where it is part of another call of its class.
    fn begin(&mut self, cx: &Cx<'_>, hook: &Hooked, op: &DmaOp) -> bool {
        let (rsp, class) = (hook.rsp, class(op));
        let level = cx.context.map(|context| context.level);
        // A function that ends with a jump makes the function that it jumps to return to its own caller.
        let jumped = |o: &Open| {
            o.hook.rsp == rsp && o.hook.ret == hook.ret && o.hook.summary.name != hook.summary.name
        };
        self.open.retain(|o| !same_block(o.hook.rsp, rsp) || o.hook.rsp > rsp || jumped(o));
        // The context of the kernel's calls after an interrupt is not known.
        let within = |o: &Open| o.level.zip(level).is_none_or(|(around, inner)| around == inner);
        let around = |o: &Open| same_block(o.hook.rsp, rsp) && o.hook.rsp - rsp < NESTING && within(o);
        // If the log holds no return of a call, it is not known whether the call is over. Functions that free
        // may be hooked twice, and functions that map or unmap one buffer call each other.
        let calls = |o: &Open| match class {
            8 => false,
            1 | 2 => jumped(o) || cx.state.kernel_function(hook.ret.wrapping_sub(1)) == o.hook.summary.name,
            _ => true,
        };
        if self.open.iter().any(|o| o.class == class && around(o) && calls(o)) {
            return false;
        }
        if self.open.len() >= MAX_OPEN {
            self.open.clear();
        }
        self.open.push(Open { hook: hook.clone(), level, class });
        true
    }

    /// A hooked call has returned.
    fn ended(&mut self, cx: &mut Cx<'_>, hook: &Hooked, result: u64) {
        let Some(op) = operation(&hook.summary) else { return };
        match *op {
            DmaOp::Map { .. } => self.mapped(cx, hook, op, result),
            DmaOp::MapList { .. } => self.list_mapped(cx, hook, op, result),
            DmaOp::AllocCoherent { dev, size, .. } if result != 0 => {
                self.device(cx, arg(&hook.args, dev), hook.module.is_some());
                self.memory.coherent(hook, arg(&hook.args, dev), arg(&hook.args, size), result);
            }
            DmaOp::CreatePool { dev, size } if result != 0 => {
                self.memory.pool(hook, arg(&hook.args, dev), arg(&hook.args, size), result);
            }
            DmaOp::PoolAlloc { pool, .. } => self.memory.block(hook, arg(&hook.args, pool), result),
            DmaOp::MapIo => self.memory.map_io(hook, result),
            DmaOp::Unbind { dev } => self.unbound(cx, arg(&hook.args, dev)),
            DmaOp::NeedUnmap { dev } => {
                let dev = arg(&hook.args, dev);
                // The result is a bool; its upper bits mean nothing.
                let no_unmap = result as u8 == 0;
                if let Some(device) = self.device(cx, dev, false) {
                    device.no_unmap = no_unmap;
                }
                if no_unmap {
                    self.drop_mappings(|m| m.dev == dev);
                }
            }
            DmaOp::Other { dev } => {
                if let Some(device) = self.device(cx, arg(&hook.args, dev), false) {
                    device.other = true;
                }
            }
            _ => {}
        }
    }

    /// What is known about a device, from the first use of the device on. Returns `None` where there are too
    /// many.
    fn device(&mut self, cx: &Cx<'_>, dev: u64, driver: bool) -> Option<&mut Device> {
        if !self.devices.contains_key(&dev) {
            if self.devices.len() >= MAX_DEVICES {
                return None;
            }
            if let Some(offset) = cx.state.world.dma_skip_sync() {
                let byte = dev.wrapping_add(offset);
                self.skip_bytes.insert(byte, dev);
                self.maps.watch(byte);
            }
        }
        let device = self.devices.entry(dev).or_default();
        device.driver |= driver;
        Some(device)
    }

    /// Whether all mappings of a device are known, so that an address in none of them is wrong.
    fn is_complete(&self, dev: u64) -> bool {
        self.devices.get(&dev).is_some_and(|d| d.driver && !d.no_unmap && !d.other)
    }

    fn drop_mappings(&mut self, which: impl Fn(&maps::Mapping) -> bool) {
        let ids: Vec<_> = self.maps.iter().filter(|(_, m)| which(m)).map(|(id, _)| id).collect();
        for id in ids {
            self.maps.remove(id);
        }
    }

    /// A driver was unbound from a device.
    fn unbound(&mut self, cx: &mut Cx<'_>, dev: u64) {
        self.leaks(cx, "the driver had left the device", |m| m.dev == dev && m.by_driver);
        self.memory.leaks(cx, "the driver had left the device", |owner| owner.dev == dev);
        self.drop_mappings(|m| m.dev == dev);
        self.memory.forget(|owner| owner.dev == dev);
        if self.devices.remove(&dev).is_some()
            && let Some(offset) = cx.state.world.dma_skip_sync()
        {
            let byte = dev.wrapping_add(offset);
            if self.skip_bytes.remove(&byte).is_some() {
                self.maps.unwatch(byte);
            }
        }
    }

    /// Reports mappings that should have been unmapped by now.
    fn leaks(&mut self, cx: &mut Cx<'_>, when: &str, which: impl Fn(&maps::Mapping) -> bool) {
        let mut left: Vec<_> =
            self.maps.iter().filter(|(_, m)| which(m) && m.module.is_some() && !m.told).collect();
        left.sort_by_key(|(_, m)| m.serial);
        let state = cx.state;
        for (_, m) in left {
            if self.devices.get(&m.dev).is_some_and(|d| d.no_unmap) {
                continue;
            }
            let pooled = |at: &u64| Role::Pools.has(&state.kernel_function(*at));
            if !m.by_driver && state.stacks.get(m.stack).iter().take(4).any(pooled) {
                // The pool unmaps pages that are still in use in the network stack later, when they return to
                // it.
                continue;
            }
            cx.report(NAME, "dma-leak", Site::Stack(m.stack), || {
                let object =
                    m.memory.first().and_then(|piece| state.objects.at(piece.0)).map(|(_, o)| o.clone());
                Draft {
                    severity: Severity::Warning,
                    object,
                    ..Draft::error(format!("{} still mapped when {when}", text::mapping(m)))
                }
            });
        }
    }
}

/// Where a fault in a call of a hooked function is reported: at the driver's call, or at the stack that led
/// to it.
fn place(cx: &Cx<'_>, hook: &Hooked) -> Site {
    match cx.context.and_then(Context::out) {
        Some(_) => Site::Call,
        None => Site::Stack(hook.stack),
    }
}

fn key(cx: &Cx<'_>) -> Option<(u64, Level)> {
    cx.context.map(Context::key)
}

impl Checker for DmaCheck {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs_definedness(&self) -> bool {
        true
    }

    #[inline]
    fn load(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access) {
        // What an instruction updates is judged when it writes.
        if self.maps.may_touch(access.addr, u64::from(access.size)) && !insn.access.updates {
            self.touched(cx, Site::Insn(insn.addr), access.addr, u64::from(access.size), false);
        }
    }

    #[inline]
    fn store(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access, _: Value) {
        if access.io && !self.doubts.is_empty() {
            self.started(cx);
        }
        if self.maps.may_touch(access.addr, u64::from(access.size)) {
            self.touched(cx, Site::Insn(insn.addr), access.addr, u64::from(access.size), true);
        }
    }

    fn finish(&mut self, cx: &mut Cx<'_>) {
        self.settle(cx, |_| true);
    }

    fn rep_move(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, range: RepRange) {
        let len = range.bytes();
        self.range(cx, Site::Insn(insn.addr), range.src, len, false);
        self.range(cx, Site::Insn(insn.addr), range.dst, len, true);
    }

    fn rep_set(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, range: RepRange, _: Value) {
        let len = range.bytes();
        self.range(cx, Site::Insn(insn.addr), range.dst, len, true);
    }

    fn rep_read(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, range: RepRange) {
        let len = range.bytes();
        self.range(cx, Site::Insn(insn.addr), range.src, len, false);
    }

    fn call(&mut self, cx: &mut Cx<'_>, out: &Out, _: &Regs) {
        let Some(summary) = &out.summary else { return };
        self.asks(cx, out, operation(summary));
        self.touched_by_call(cx, out);
    }

    fn call_returned(&mut self, cx: &mut Cx<'_>, out: &Out, result: u64) {
        // For a function that ends with an indirect jump, the log holds no return.
        let over = |o: &Open| same_block(o.hook.rsp, out.entry_rsp) && o.hook.rsp <= out.entry_rsp;
        let Some(at) = self.open.iter().position(over) else { return };
        if self.open[at].hook.rsp == out.entry_rsp && self.open[at].hook.by_driver {
            let open = self.open.remove(at);
            self.ended(cx, &open.hook, result);
        }
        self.open.retain(|o| !over(o));
    }

    fn hook_called(&mut self, cx: &mut Cx<'_>, hook: &Hooked) {
        let Some(op) = operation(&hook.summary) else { return };
        let outermost = self.begin(cx, hook, op);
        if let DmaOp::UnmapIo { addr } = *op {
            return self.memory.unmap_io(arg(&hook.args, addr));
        }
        if !outermost {
            return;
        }
        match op {
            DmaOp::Unmap { .. } => self.unmapped(cx, hook, op),
            DmaOp::UnmapList { .. } => self.list_unmapped(cx, hook, op),
            DmaOp::SyncSingle { .. } => self.synced(cx, hook, op),
            DmaOp::SyncList { .. } => self.list_synced(cx, hook, op),
            DmaOp::FreeCoherent { .. } | DmaOp::DestroyPool { .. } | DmaOp::PoolFree { .. } => {
                self.memory.freed(cx, hook, op);
            }
            _ => {}
        }
    }

    fn hook_returned(&mut self, cx: &mut Cx<'_>, hook: &Hooked, result: u64) {
        if operation(&hook.summary).is_none() {
            return;
        }
        let is_it = |o: &Open| o.hook.rsp == hook.rsp && o.hook.summary.name == hook.summary.name;
        if let Some(at) = self.open.iter().rposition(is_it) {
            self.open.remove(at);
            self.ended(cx, hook, result);
        }
    }

    fn hook_list(&mut self, cx: &mut Cx<'_>, hook: &Hooked, list: PassedList<'_>) {
        self.list_told(cx, hook, list);
    }

    fn compared_with_ones(&mut self, cx: &mut Cx<'_>) {
        if !self.unchecked.is_empty()
            && let Some(context) = cx.context
        {
            self.unchecked.checked(context);
        }
    }

    fn stack_left(&mut self, cx: &mut Cx<'_>, _: u64, _: u64) {
        self.unchecked.left(cx);
    }

    fn allocated(&mut self, _: &mut Cx<'_>, _: ObjectId, object: &Object) {
        self.memory.revive(&mut self.maps, object.base, object.slot_end);
    }

    fn freed(&mut self, cx: &mut Cx<'_>, id: ObjectId, object: &Object) {
        self.object_freed(cx, id, object);
        self.memory.die(&mut self.maps, object);
    }

    fn forgotten(&mut self, _: &mut Cx<'_>, from: u64, to: u64) {
        self.memory.revive(&mut self.maps, from, to);
    }

    fn module_unloaded(&mut self, cx: &mut Cx<'_>, module: u32) {
        self.leaks(cx, "the module was unloaded", |m| m.module == Some(module));
        self.memory.leaks(cx, "the module was unloaded", |owner| owner.module == Some(module));
        self.drop_mappings(|m| m.module == Some(module));
        self.told.renamed();
        self.memory.forget(|owner| owner.module == Some(module));
    }
}
