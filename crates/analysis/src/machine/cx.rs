//! What checkers see of the machine, and how they report.

use crate::blocks::Blocks;
use crate::checkers::Checker;
use crate::context::Context;
use crate::effect::{Ptr, Summary};
use crate::finding::{self, Finding, Frame, ObjectInfo, OriginInfo, Severity, Trace};
use crate::flow::{Control, InsnCtx, Memory, Origin, RepRange, Value};
use crate::modules::Modules;
use crate::objects::{Object, Objects};
use crate::reports::Reports;
use crate::stacks::{MAX_FRAMES, StackId, Stacks};
use crate::sync::Sync;
use crate::world::{World, find};
use guardrail_trace::event::{Access, Global, ThreadFlags};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

const MAX_THREADS: usize = 1 << 16;
const MAX_CALLS: usize = 1 << 16;
/// How names of threads begin that the kernel makes for itself and that have no slash.
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

/// What the machine knows, apart from its contexts.
pub struct State {
    /// Kernel and modules.
    pub world: Box<dyn World>,
    /// What KASLR added to link-time addresses.
    pub slide: u64,
    /// Where the direct map begins.
    pub page_offset: u64,
    /// Where the array of `struct page` begins.
    pub vmemmap: u64,
    /// Where vmalloc space begins.
    pub vmalloc: u64,
    /// Modules.
    pub modules: Modules,
    /// Objects.
    pub objects: Objects,
    /// Call stacks of allocations.
    pub stacks: Stacks,
    /// Blocks.
    pub blocks: Blocks,
    /// Locks, the order of events, the states of kernel objects.
    pub sync: Sync,
    /// Where `preempt_count` is; see [`World::preempt_count`].
    pub(super) preempt_count: Option<(u64, bool)>,
    threads: FxHashMap<u64, String>,
    /// Those that are threads of user processes.
    users: FxHashSet<u64>,
    calls: RefCell<FxHashMap<u64, Arc<Summary>>>,
    thunks: RefCell<(FxHashSet<u64>, FxHashSet<u64>)>,
}

impl State {
    pub(super) fn new(world: Box<dyn World>) -> Self {
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
            sync: Sync::default(),
            threads: FxHashMap::default(),
            users: FxHashSet::default(),
            calls: RefCell::default(),
            thunks: RefCell::default(),
        }
    }

    pub(super) fn set_global(&mut self, global: Option<Global>, value: u64) {
        match global {
            Some(Global::Slide) => {
                self.slide = value;
                if let Some(rtnl) = self.world.rtnl_mutex() {
                    self.sync.set_rtnl(rtnl.wrapping_add(value));
                }
            }
            Some(Global::PageOffsetBase) => self.page_offset = value,
            Some(Global::VmemmapBase) => self.vmemmap = value,
            Some(Global::VmallocBase) => self.vmalloc = value,
            Some(Global::FreezableQueue | Global::FreezableEfficientQueue) => self.sync.add_freezable(value),
            Some(Global::GsBase) | None => {}
        }
        self.calls.borrow_mut().clear();
        *self.thunks.borrow_mut() = Default::default();
    }

    pub(super) fn name_thread(&mut self, task: u64, pid: u32, flags: u8, comm: [u64; 2]) {
        if self.threads.len() >= MAX_THREADS {
            self.threads.clear();
            self.users.clear();
        }
        let bytes: Vec<u8> = comm.iter().flat_map(|w| w.to_le_bytes()).take_while(|&b| b != 0).collect();
        let name: String =
            String::from_utf8_lossy(&bytes).chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        // Logs of earlier tracers leave it to the names, and users' commands have no slash.
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
    pub(super) fn is_user(&self, task: u64) -> bool {
        self.users.contains(&task)
    }

    /// A task's name and pid.
    pub(super) fn thread_name(&self, task: u64, pid: u32) -> String {
        self.threads.get(&task).cloned().unwrap_or_else(|| format!("?/{pid}"))
    }

    /// Whether a task is a thread of the kernel that runs callbacks of many objects.
    pub(super) fn is_worker(&self, task: u64) -> bool {
        const WORKERS: [&str; 4] = ["kworker/", "irq/", "ksoftirqd/", "napi/"];
        self.threads.get(&task).is_some_and(|name| WORKERS.iter().any(|worker| name.starts_with(worker)))
    }

    /// The name of the function at an address in memory, in the kernel or in a module that is not watched; empty where there
    /// is none.
    pub fn kernel_function(&self, addr: u64) -> String {
        if let Some(other) = self.modules.other_at(addr) {
            return find(&other.functions, addr).map_or_else(String::new, |f| f.name.to_string());
        }
        self.world.function_at(addr.wrapping_sub(self.slide)).map_or_else(String::new, |(name, _)| name)
    }

    /// Whether a jump to `target` is a return.
    pub(super) fn is_return_thunk(&self, target: u64) -> bool {
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

    /// Modules have come or gone: addresses mean something else.
    pub(super) fn renamed(&mut self) {
        self.calls.borrow_mut().clear();
        self.thunks.borrow_mut().1.clear();
    }

    /// Whether `addr` is in vmalloc space.
    pub fn is_vmalloc(&self, addr: u64) -> bool {
        // 32 TiB, or 12.5 PiB with five-level page tables, which end at the array of `struct page`.
        addr >= self.vmalloc && addr < self.vmemmap
    }

    /// The address of the memory that a `struct page` stands for.
    pub fn page_address(&self, page: u64) -> u64 {
        let index = page.wrapping_sub(self.vmemmap) / self.world.page_struct_size().max(1);
        self.page_offset.wrapping_add(index.wrapping_mul(4096))
    }

    /// The address that a pointer of a call holds.
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

    /// Names an address.
    pub fn frame(&self, addr: u64, is_return: bool) -> Frame {
        self.modules.frame(self.world.as_ref(), self.slide, addr, is_return)
    }

    /// Names the addresses of a stack.
    pub fn frames(&self, stack: &[u64]) -> Vec<Frame> {
        stack.iter().enumerate().map(|(i, &addr)| self.frame(addr, i > 0)).collect()
    }

    /// The stack of an allocation or a free.
    pub fn trace(&self, stack: StackId) -> Option<Trace> {
        let frames = self.frames(self.stacks.get(stack));
        (!frames.is_empty()).then_some(Trace { stack: frames })
    }
}

/// Where something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At an instruction of the driver.
    Insn(u64),
    /// At the call that the context is out on.
    Call,
    /// At the driver's function in this stack.
    Stack(StackId),
}

/// A finding in the making.
#[derive(Clone, Debug)]
pub struct Draft {
    /// What is to be said.
    pub message: String,
    /// How bad it is.
    pub severity: Severity,
    /// The object it is about.
    pub object: Option<Object>,
    /// Where in the object the access lies, and the member there, where the type is known.
    pub within: Option<(i64, Option<String>)>,
    /// Where the undefined value came from.
    pub origin: Option<OriginInfo>,
    /// The state of the bytes around.
    pub shadow: Vec<String>,
    /// What was touched.
    pub access: Option<finding::AccessInfo>,
    /// The second access of a race.
    pub other: Option<finding::Other>,
    /// Further places that explain it.
    pub related: Vec<finding::Related>,
    /// Sentences that explain it.
    pub notes: Vec<String>,
    /// Why it is likely harmless, or `harmful`.
    pub triage: Option<String>,
}

impl Draft {
    /// An error with a message alone.
    pub fn error(message: String) -> Draft {
        Draft {
            message,
            severity: Severity::Error,
            object: None,
            within: None,
            origin: None,
            shadow: Vec::new(),
            access: None,
            other: None,
            related: Vec::new(),
            notes: Vec::new(),
            triage: None,
        }
    }
}

/// What a checker is called with.
pub struct Cx<'a> {
    /// What the machine knows.
    pub state: &'a State,
    /// Who runs.
    pub context: Option<&'a Context>,
    /// The findings.
    pub reports: &'a mut Reports,
    /// The vCPU.
    pub cpu: u32,
    /// The number of the event.
    pub event: u64,
}

impl Cx<'_> {
    /// The stack at a place: an instruction, then return addresses.
    pub fn stack(&self, place: Place) -> Vec<u64> {
        let mut stack = Vec::with_capacity(MAX_FRAMES);
        match place {
            Place::Insn(pc) => stack.push(pc),
            Place::Call => stack.extend(self.context.and_then(Context::out).map(|out| out.pc)),
            Place::Stack(id) => return self.state.stacks.get(id).to_vec(),
        }
        if let Some(context) = self.context {
            context.callers(&mut stack, MAX_FRAMES);
        }
        stack
    }

    /// Reports a finding, or counts it where it is known. Gives its number.
    pub fn report(
        &mut self,
        checker: &'static str,
        kind: &'static str,
        place: Place,
        draft: impl FnOnce() -> Draft,
    ) -> Option<usize> {
        let stack = self.stack(place);
        self.report_stack(checker, kind, &stack, draft)
    }

    /// The same at a stack of addresses.
    pub fn report_stack(
        &mut self,
        checker: &'static str,
        kind: &'static str,
        stack: &[u64],
        draft: impl FnOnce() -> Draft,
    ) -> Option<usize> {
        self.report_as(checker, kind, stack, stack, draft)
    }

    /// The same, where `key` and not the stack tells findings of this kind apart.
    pub fn report_as(
        &mut self,
        checker: &'static str,
        kind: &'static str,
        stack: &[u64],
        key: &[u64],
        draft: impl FnOnce() -> Draft,
    ) -> Option<usize> {
        // A checker without a name works for others and is not heard.
        if checker.is_empty() {
            return None;
        }
        let (state, context, cpu, event) = (self.state, self.context, self.cpu, self.event);
        self.reports.add(kind, key, || {
            let draft = draft();
            let frames = state.frames(stack);
            let top = frames.iter().find(|f| f.in_driver()).or(frames.first());
            let (offset, field) = draft.within.map_or((None, None), |(offset, field)| (Some(offset), field));
            let object = draft.object.map(|o| ObjectInfo {
                address: format!("{:#x}", o.start),
                size: o.size,
                class: o.class.name().to_owned(),
                offset,
                field,
                allocated: state.trace(o.allocated),
                freed: o.freed.and_then(|id| state.trace(id)),
            });
            Finding {
                id: String::new(),
                checker: checker.to_owned(),
                kind: kind.to_owned(),
                severity: draft.severity,
                triage: draft.triage,
                message: draft.message,
                module: top.and_then(|f| f.module.clone()).unwrap_or_default(),
                function: top.map_or_else(|| "?".to_owned(), |f| f.function.clone()),
                offset: top.map_or(0, |f| f.offset),
                location: top.and_then(|f| f.location.clone()),
                stack: frames,
                context: describe(state, context, cpu),
                access: draft.access,
                other: draft.other,
                related: draft.related,
                notes: draft.notes,
                object,
                origin: draft.origin,
                shadow: draft.shadow,
                event,
                count: 0,
            }
        })
    }
}

/// Who runs, in words.
pub fn describe(state: &State, context: Option<&Context>, cpu: u32) -> finding::Context {
    match context {
        Some(c) => finding::Context {
            thread: state.threads.get(&c.task).cloned().unwrap_or_else(|| format!("?/{}", c.pid)),
            cpu,
            level: c.level.name().to_owned(),
            locks: Vec::new(),
            states: Vec::new(),
        },
        None => finding::Context {
            thread: String::new(),
            cpu,
            level: "process".to_owned(),
            locks: Vec::new(),
            states: Vec::new(),
        },
    }
}

/// Hands what instructions do to all checkers.
pub(super) struct Fan<'a> {
    pub checkers: &'a mut [Box<dyn Checker>],
    pub unknown: &'a mut BTreeMap<String, u64>,
    pub low: &'a mut u64,
    /// Locks and order matter to some checker.
    pub order: bool,
    pub state: &'a mut State,
    pub context: &'a mut Context,
    pub reports: &'a mut Reports,
    pub cpu: u32,
    pub event: u64,
}

impl Fan<'_> {
    /// Tells all checkers.
    #[inline]
    pub fn each(&mut self, mut f: impl FnMut(&mut dyn Checker, &mut Cx<'_>)) {
        let mut cx = Cx {
            state: self.state,
            context: Some(self.context),
            reports: self.reports,
            cpu: self.cpu,
            event: self.event,
        };
        for checker in &mut *self.checkers {
            f(checker.as_mut(), &mut cx);
        }
    }

    /// What was read counts as defined where all checkers say so.
    #[inline]
    fn read(&mut self, mut f: impl FnMut(&mut dyn Checker, &mut Cx<'_>) -> Value) -> Value {
        let mut value = Value::DEFINED;
        self.each(|checker, cx| {
            let more = f(checker, cx);
            if more.undef != 0 {
                value = Value { undef: value.undef | more.undef, origin: more.origin };
            }
        });
        value
    }

    /// A string instruction has touched a range.
    fn range(&mut self, addr: u64, range: &RepRange, store: bool) {
        if self.order && addr != 0 && !range.io {
            let size = range.count.saturating_mul(u64::from(range.elem));
            self.state.sync.touches(self.context, addr, size);
            self.state.sync.touched_range(self.context, addr, size, store);
        }
    }

    /// A string instruction is about to touch a range.
    fn touches(&mut self, addr: u64, range: &RepRange) {
        if self.order && addr != 0 && !range.io {
            let size = range.count.saturating_mul(u64::from(range.elem));
            self.state.sync.touches(self.context, addr, size);
        }
    }
}

impl Memory for Fan<'_> {
    #[inline]
    fn load(&mut self, ctx: &InsnCtx, access: Access) -> Value {
        // What is read may hand order on to what follows, this access included.
        if self.order {
            self.state.sync.touches(self.context, access.addr, u64::from(access.size));
            self.state.sync.touched(self.context, ctx, &access);
        }
        self.read(|checker, cx| checker.load(cx, ctx, access))
    }

    #[inline]
    fn store(&mut self, ctx: &InsnCtx, access: Access, value: Value) {
        if self.order {
            self.state.sync.touches(self.context, access.addr, u64::from(access.size));
        }
        self.each(|checker, cx| checker.store(cx, ctx, access, value));
        // The store itself is part of what it hands on.
        if self.order {
            self.state.sync.touched(self.context, ctx, &access);
        }
    }

    fn undefined_branch(&mut self, ctx: &InsnCtx, origin: Origin) {
        self.each(|checker, cx| checker.undefined_branch(cx, ctx, origin));
    }

    fn undefined_address(&mut self, ctx: &InsnCtx, access: Access, reg: u8, origin: Origin) {
        self.each(|checker, cx| checker.undefined_address(cx, ctx, access, reg, origin));
    }

    fn undefined_port_output(&mut self, ctx: &InsnCtx, origin: Origin) {
        self.each(|checker, cx| checker.undefined_port_output(cx, ctx, origin));
    }

    fn rep_move(&mut self, ctx: &InsnCtx, range: RepRange) {
        self.range(range.src, &range, false);
        self.touches(range.dst, &range);
        self.each(|checker, cx| checker.rep_move(cx, ctx, range));
        self.range(range.dst, &range, true);
    }

    fn rep_set(&mut self, ctx: &InsnCtx, range: RepRange, value: Value) {
        self.touches(range.dst, &range);
        self.each(|checker, cx| checker.rep_set(cx, ctx, range, value));
        self.range(range.dst, &range, true);
    }

    fn rep_read(&mut self, ctx: &InsnCtx, range: RepRange) -> Value {
        self.range(range.src, &range, false);
        self.read(|checker, cx| checker.rep_read(cx, ctx, range))
    }

    fn stack_adjusted(&mut self, ctx: &InsnCtx, old: u64, new: u64) {
        *self.low = (*self.low).min(new);
        self.each(|checker, cx| checker.stack_adjusted(cx, ctx, old, new));
    }

    fn control(&mut self, _: &InsnCtx, control: Control) {
        if self.order {
            let slide = self.state.slide;
            let place = self
                .state
                .preempt_count
                .map(|(place, relative)| if relative { place.wrapping_add(slide) } else { place });
            self.context.own.control(control, place);
            self.context.now.off = self.context.own.off(self.context.level);
        }
    }

    fn unknown(&mut self, _: &InsnCtx, mnemonic: iced_x86::Mnemonic) {
        *self.unknown.entry(format!("{mnemonic:?}").to_lowercase()).or_default() += 1;
    }
}
