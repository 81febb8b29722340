//! The state of the machine apart from its contexts.

use super::{Activation, Blocks, Context, Modules, Objects, Out, USER_END, World, find, length};
use crate::level::Level;
use crate::order::Order;
use crate::stacks::{CallTrace, Place, StackId, Stacks, same_stack};
use guardrail_finding::{CallStack, ContextInfo, Frame};
use guardrail_knowledge::effect::{Len, Ptr, Summary};
use guardrail_trace::event::{Global, ThreadFlags};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::sync::Arc;

const MAX_THREADS: usize = 1 << 16;
const MAX_CALLS: usize = 1 << 16;
/// Prefixes of names of kernel threads that have no slash.
const KERNEL_THREADS: [&str; 15] = [
    "kthreadd",
    "rcu_",
    "kdevtmpfs",
    "kauditd",
    "khungtaskd",
    "oom_reaper",
    "kcompactd",
    "ksmd",
    "khugepaged",
    "kswapd",
    "scsi_eh_",
    "scsi_tmf_",
    "hwrng",
    "watchdogd",
    "usb-storage",
];

/// The state of the machine, apart from its contexts.
pub struct State {
    /// What is known about the kernel and its modules.
    pub world: Box<dyn World>,
    /// What KASLR adds to link-time addresses.
    pub slide: u64,
    /// Where the direct map begins.
    pub page_offset: u64,
    /// Where the array of `struct page` begins.
    pub vmemmap: u64,
    /// Where vmalloc space begins.
    pub vmalloc: u64,
    /// The modules, watched or not.
    pub modules: Modules,
    /// The objects, allocated or freed.
    pub objects: Objects,
    /// Call stacks of allocations, frees and locks.
    pub stacks: Stacks,
    /// Decoded blocks of driver code.
    pub blocks: Blocks,
    /// Locks, the order of events, the states of kernel objects.
    pub order: Order,
    /// Offset of `preempt_count`; see [`World::preempt_count`].
    pub(crate) preempt_count: Option<(u64, bool)>,
    threads: FxHashMap<u64, String>,
    /// Tasks that are threads of user processes.
    users: FxHashSet<u64>,
    calls: RefCell<FxHashMap<u64, Arc<Summary>>>,
    thunks: RefCell<(FxHashSet<u64>, FxHashSet<u64>)>,
}

impl State {
    pub(crate) fn new(world: Box<dyn World>) -> Self {
        State {
            preempt_count: world.preempt_count(),
            world,
            slide: 0,
            page_offset: 0xffff_8880_0000_0000,
            vmemmap: 0xffff_ea00_0000_0000,
            vmalloc: 0xffff_c900_0000_0000,
            modules: Modules::default(),
            objects: Objects::default(),
            stacks: Stacks::default(),
            blocks: Blocks::default(),
            order: Order::default(),
            threads: FxHashMap::default(),
            users: FxHashSet::default(),
            calls: RefCell::default(),
            thunks: RefCell::default(),
        }
    }

    pub(crate) fn set_global(&mut self, global: Option<Global>, value: u64) {
        match global {
            Some(Global::Slide) => {
                self.slide = value;
                if let Some(rtnl) = self.world.rtnl_mutex() {
                    self.order.set_rtnl(rtnl.wrapping_add(value));
                }
            }
            Some(Global::PageOffsetBase) => self.page_offset = value,
            Some(Global::VmemmapBase) => self.vmemmap = value,
            Some(Global::VmallocBase) => self.vmalloc = value,
            Some(Global::FreezableQueue | Global::FreezableEfficientQueue) => self.order.add_freezable(value),
            Some(Global::GsBase) | None => {}
        }
        self.calls.borrow_mut().clear();
        *self.thunks.borrow_mut() = Default::default();
    }

    pub(crate) fn name_thread(&mut self, task: u64, pid: u32, flags: u8, comm: [u64; 2]) {
        if self.threads.len() >= MAX_THREADS {
            self.threads.clear();
            self.users.clear();
        }
        let bytes: Vec<u8> = comm.iter().flat_map(|w| w.to_le_bytes()).take_while(|&b| b != 0).collect();
        let name: String =
            String::from_utf8_lossy(&bytes).chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        // Logs of earlier tracers hold no such flag, so the name decides. Commands of users have no slash.
        let kernel = if flags & (ThreadFlags::KERNEL | ThreadFlags::USER) == 0 {
            name.contains('/') || KERNEL_THREADS.iter().any(|thread| name.starts_with(thread))
        } else {
            flags & ThreadFlags::KERNEL != 0
        };
        if kernel {
            self.users.remove(&task);
        } else {
            self.users.insert(task);
        }
        self.threads.insert(task, format!("{name}/{pid}"));
    }

    /// Whether a task is known to be a thread of a user process.
    pub(crate) fn is_user(&self, task: u64) -> bool {
        self.users.contains(&task)
    }

    /// A task's name; a placeholder with its pid where the name is not known.
    pub(crate) fn thread_name(&self, task: u64, pid: u32) -> String {
        self.threads.get(&task).cloned().unwrap_or_else(|| format!("?/{pid}"))
    }

    /// Whether a task is a kernel thread that runs callbacks of many objects.
    pub(crate) fn is_worker(&self, task: u64) -> bool {
        const WORKERS: [&str; 4] = ["kworker/", "irq/", "ksoftirqd/", "napi/"];
        self.threads.get(&task).is_some_and(|name| WORKERS.iter().any(|worker| name.starts_with(worker)))
    }

    /// The name of the function at an address, in the kernel or in a module that is not watched. Empty where
    /// no function is known there.
    pub fn kernel_function(&self, addr: u64) -> String {
        if let Some(other) = self.modules.other_at(addr) {
            return find(&other.functions, addr).map_or_else(String::new, |f| f.name.to_string());
        }
        self.world.function_at(addr.wrapping_sub(self.slide)).map_or_else(String::new, |(name, _)| name)
    }

    /// Whether a jump to `target` is a return.
    pub(crate) fn is_return_thunk(&self, target: u64) -> bool {
        let mut thunks = self.thunks.borrow_mut();
        if thunks.0.contains(&target) {
            return true;
        }
        if thunks.1.contains(&target) {
            return false;
        }
        if thunks.1.len() > MAX_CALLS {
            thunks.1.clear();
        }
        let is = !self.modules.contains(target) && self.kernel_function(target).contains("return_thunk");
        if is {
            thunks.0.insert(target)
        } else {
            thunks.1.insert(target)
        };
        is
    }

    /// What the kernel function at `target` does.
    pub fn summary(&self, target: u64) -> Arc<Summary> {
        if let Some(summary) = self.calls.borrow().get(&target) {
            return summary.clone();
        }
        let other = self.modules.other_at(target);
        let summary = match other {
            Some(other) => match find(&other.functions, target) {
                Some(f) if f.start == target => self.world.call_other(&other.name, &f.name),
                _ => Arc::new(Summary::unknown("?")),
            },
            None => match self.world.function_at(target.wrapping_sub(self.slide)) {
                Some((name, 0)) => self.world.call(&name),
                _ => Arc::new(Summary::unknown("?")),
            },
        };
        let mut calls = self.calls.borrow_mut();
        if calls.len() >= MAX_CALLS {
            calls.clear();
        }
        calls.insert(target, summary.clone());
        summary
    }

    /// Forgets names of addresses: a module was loaded or unloaded.
    pub(crate) fn renamed(&mut self) {
        self.calls.borrow_mut().clear();
        self.thunks.borrow_mut().1.clear();
    }

    /// Whether `addr` is in vmalloc space.
    pub fn is_vmalloc(&self, addr: u64) -> bool {
        // The space has 32 TiB, or 12.5 PiB with five-level page tables, and ends at the array of `struct
        // page`.
        addr >= self.vmalloc && addr < self.vmemmap
    }

    /// The address in the direct map of the memory that a `struct page` stands for.
    pub fn page_address(&self, page: u64) -> u64 {
        let index = page.wrapping_sub(self.vmemmap) / self.world.page_struct_size().max(1);
        self.page_offset.wrapping_add(index.wrapping_mul(4096))
    }

    /// The address that a pointer argument of a call holds.
    pub fn pointer(&self, ptr: Ptr, args: &[u64]) -> u64 {
        let arg = |i: u8| args.get(usize::from(i)).copied().unwrap_or(0);
        match ptr {
            Ptr::Arg(i) => arg(i),
            Ptr::Page(i, offset) => match arg(i) {
                0 => 0,
                page => self.page_address(page).wrapping_add(offset.map_or(0, arg)),
            },
        }
    }

    /// The number of bytes from `at` that a call accesses; `None` where it is not known (yet).
    pub fn extent(&self, context: Option<&Context>, out: &Out, len: Len, at: u64) -> Option<u64> {
        if len != Len::Rest {
            return length(len, &out.args);
        }
        if at < USER_END {
            return None;
        }
        if let Some((_, object)) = self.objects.at(at) {
            return object.end().checked_sub(at);
        }
        if at < out.entry_rsp || !same_stack(at, out.entry_rsp) {
            return None;
        }
        let frames = context?.stack.iter().filter_map(|a| match a {
            Activation::Frame { entry_rsp, .. } if *entry_rsp > at => Some(*entry_rsp),
            _ => None,
        });
        frames.min()?.checked_sub(at)
    }

    /// Names an address, which may be a return address.
    pub fn frame(&self, addr: u64, is_return: bool) -> Frame {
        self.modules.frame(self.world.as_ref(), self.slide, addr, is_return)
    }

    /// Names the addresses of the near part of a stack, innermost first.
    pub fn frames(&self, near: &[u64]) -> Vec<Frame> {
        near.iter().enumerate().map(|(i, &addr)| self.frame(addr, i > 0)).collect()
    }

    /// Names all addresses of a stack, innermost first.
    pub fn whole(&self, trace: &CallTrace) -> Vec<Frame> {
        let frame = |place: Place| Frame {
            outer: place.outer,
            switched: place.switched,
            ..self.frame(place.address, place.is_return)
        };
        self.stacks.places(trace).into_iter().map(frame).collect()
    }

    /// Like [`whole`](Self::whole), for a stack by its number.
    pub fn whole_of(&self, stack: StackId) -> Vec<Frame> {
        self.whole(&self.stacks.trace(stack))
    }

    /// The stack of an allocation or a free, with names.
    pub fn trace(&self, stack: StackId) -> Option<CallStack> {
        let frames = self.whole_of(stack);
        (!frames.is_empty()).then(|| CallStack { stack: frames, ..CallStack::default() })
    }
}

/// Describes the context that runs.
pub fn describe(state: &State, context: Option<&Context>, cpu: u32) -> ContextInfo {
    ContextInfo {
        thread: context.map_or_else(String::new, |c| state.thread_name(c.task, c.pid)),
        cpu,
        level: context.map_or(Level::Process, |c| c.level).name().to_owned(),
        ..ContextInfo::default()
    }
}
