//! Hooked functions: allocations and frees, by the driver and by the kernel.
//!
//! Allocators call each other. The innermost one makes the object. An outer one whose result lies in that
//! object takes it over, with the size that its caller asked for. The outermost free of a pointer is judged;
//! the frees inside it are its own business.

use super::Replay;
use crate::checker::{BadFree, FreeFault, Hooked, ListTold};
use crate::machine::{Object, ObjectId, USER_END, kmalloc_slot, length};
use crate::order::Pending;
use crate::stacks::{MAX_FRAMES, StackId, same_stack};
use guardrail_knowledge::effect::{Class, Effect, Len, Summary, Zeroed};
use guardrail_trace::event::Head;
use rustc_hash::FxHashMap;
use std::sync::Arc;

const MAX_TASKS: usize = 8192;
const MAX_NESTED: usize = 64;
const PAGE: u64 = 4096;
/// Results from here up are error codes.
const ERRORS: u64 = u64::MAX - 4094;

/// A hooked call that has not returned.
#[derive(Clone, Debug)]
pub(super) struct HookFrame {
    hook: u64,
    rsp: u64,
    ret: u64,
    args: Vec<u64>,
    summary: Arc<Summary>,
    by_driver: bool,
    /// The driver called this function itself, not another one that ended with a tail call to it.
    named: bool,
    /// Stack of the driver's call, or of the kernel's.
    stack: StackId,
    /// The serial number of the newest object when the call began.
    serial: u64,
    /// The pointer that it frees.
    freeing: Option<u64>,
    module: Option<u32>,
    /// Index of the context that was out of the driver.
    context: Option<usize>,
    task: u64,
    /// Its effects on locks and order at its return.
    pending: Option<Pending>,
}

impl HookFrame {
    fn view(&self) -> Hooked<'_> {
        Hooked {
            rsp: self.rsp,
            ret: self.ret,
            args: &self.args,
            summary: &self.summary,
            by_driver: self.by_driver,
            stack: self.stack,
            module: self.module,
        }
    }
}

/// Calls of hooked functions that have not returned, by task.
#[derive(Debug, Default)]
pub(super) struct HookFrames {
    by_task: FxHashMap<u64, Vec<HookFrame>>,
    tasks: FxHashMap<(u64, u64), u64>,
    /// The call that returned last: lists of its return follow.
    returned: Option<HookFrame>,
}

impl HookFrames {
    /// Drops calls that must be over when their task runs with `rsp` on the same stack. The log holds no
    /// return of frees.
    pub(super) fn over(&mut self, task: u64, rsp: u64, hook: Option<u64>) {
        let Some(frames) = self.by_task.get_mut(&task) else { return };
        while let Some(last) = frames.last()
            && same_stack(last.rsp, rsp)
            && (last.rsp < rsp || last.rsp == rsp && Some(last.hook) == hook)
        {
            self.tasks.remove(&(last.rsp, last.hook));
            frames.pop();
        }
    }

    fn push(&mut self, task: u64, frame: HookFrame) {
        if self.by_task.len() >= MAX_TASKS || self.tasks.len() >= MAX_TASKS * MAX_NESTED {
            self.by_task.clear();
            self.tasks.clear();
        }
        let frames = self.by_task.entry(task).or_default();
        if frames.len() >= MAX_NESTED {
            let old = frames.remove(0);
            self.tasks.remove(&(old.rsp, old.hook));
        }
        self.tasks.insert((frame.rsp, frame.hook), task);
        frames.push(frame);
    }

    fn get(&self, hook: u64, rsp: u64) -> Option<&HookFrame> {
        let task = self.tasks.get(&(rsp, hook))?;
        self.by_task.get(task)?.iter().rfind(|f| f.rsp == rsp && f.hook == hook)
    }

    fn pop(&mut self, hook: u64, rsp: u64) -> Option<HookFrame> {
        let task = self.tasks.remove(&(rsp, hook))?;
        let frames = self.by_task.get_mut(&task)?;
        let at = frames.iter().rposition(|f| f.rsp == rsp && f.hook == hook)?;
        let frame = frames.remove(at);
        if frames.is_empty() {
            self.by_task.remove(&task);
        }
        Some(frame)
    }

    /// Whether a free of this pointer or object is still running. A free that began before the object was
    /// allocated is over, though the log holds no return of it: tasks and their stacks are reused.
    fn is_freeing(&self, task: u64, base: u64, end: u64, allocated: u64) -> bool {
        self.by_task.get(&task).is_some_and(|frames| {
            frames
                .iter()
                .filter(|f| f.serial >= allocated)
                .any(|f| f.freeing.is_some_and(|p| p >= base && p < end.max(base + 1)))
        })
    }
}

impl Replay {
    pub(super) fn hook_call(&mut self, v: usize, hook: u64, count: usize, operands: &[u64]) {
        self.finish_block(v);
        let (Some(&[task, rsp, ret]), Some(args)) =
            (operands.get(..3).and_then(|o| o.first_chunk::<3>()), operands.get(3..3 + count))
        else {
            return;
        };
        let Some(summary) = self.state.world.hook(hook) else { return };
        self.hooks.over(task, rsp, Some(hook));
        let out = self.vcpus[v]
            .context
            .and_then(|c| self.contexts.get(c))
            .filter(|context| context.task == task)
            .and_then(|context| Some((context, context.out()?)))
            .filter(|(_, out)| rsp <= out.entry_rsp && same_stack(rsp, out.entry_rsp));
        // The return address shows whether it is this call. A driver that left with a jump does not run
        // again, and its task continues in the kernel at any depth of stack.
        let direct = out.is_some_and(|(context, out)| {
            out.entry_rsp == rsp && context.return_of(out).is_none_or(|r| r == ret)
        });
        let entry = self.state.world.hook_address(hook);
        let target = entry.wrapping_add(self.state.slide);
        let named = out.is_some_and(|(_, out)| direct && (entry == 0 || out.target == target));
        let by_driver = direct || self.state.modules.contains(ret);
        let mut stack = Vec::with_capacity(MAX_FRAMES);
        if entry != 0 {
            stack.push(target);
        }
        let mut module = None;
        if let Some((context, out)) = out {
            if !direct {
                stack.push(ret);
            }
            if !out.jump || direct {
                stack.push(out.ret);
            }
            context.callers(&mut stack, MAX_FRAMES);
            module = self.state.modules.at(out.pc).map(|(i, _)| i);
        } else {
            stack.push(ret);
        }
        let has_out = out.is_some();
        let stack = self.state.stacks.intern(&stack);
        let mut frame = HookFrame {
            hook,
            rsp,
            ret,
            args: args.to_vec(),
            summary,
            by_driver,
            named,
            stack,
            serial: self.state.objects.serial(),
            freeing: None,
            module: module.or_else(|| self.state.modules.at(ret).map(|(i, _)| i)),
            context: self.vcpus[v].context.filter(|_| has_out),
            task,
            pending: None,
        };
        let summary = frame.summary.clone();
        for effect in &summary.effects {
            if let Effect::Free { ptr, classes, cache } = effect {
                let ptr = self.state.pointer(*ptr, &frame.args);
                let cache = cache.and_then(|i| frame.args.get(usize::from(i)).copied());
                self.free(v, task, &frame, ptr, classes, cache, has_out);
                frame.freeing = Some(ptr);
            }
        }
        let context = frame.context;
        self.each(v, context, |checker, cx| checker.hook_called(cx, &frame.view()));
        let by_driver = frame.by_driver;
        frame.pending =
            self.hook_begins(v, task, (hook, rsp), context, &summary, &frame.args, stack, by_driver);
        self.hooks.push(task, frame);
    }

    /// The log holds the elements of a list that was passed to a hooked function.
    pub(super) fn list(&mut self, v: usize, head: Head, operands: &[u64]) {
        let (Some(&rsp), Some(words)) = (operands.first(), operands.get(2..)) else { return };
        let (hook, index) = (head.large, usize::from(head.small));
        let open = self.hooks.get(hook, rsp).cloned();
        let returned = open.is_none();
        let Some(frame) = open.or_else(|| self.hooks.returned.clone()) else { return };
        if frame.hook == hook && frame.rsp == rsp {
            let told = ListTold { index, returned, words };
            self.each(v, frame.context, |checker, cx| checker.hook_list(cx, &frame.view(), told));
        }
    }

    pub(super) fn hook_return(&mut self, v: usize, hook: u64, rsp: u64, result: u64) {
        self.finish_block(v);
        let Some(frame) = self.hooks.pop(hook, rsp) else { return };
        self.hooks.returned = None;
        let context = frame.context;
        self.each(v, context, |checker, cx| checker.hook_returned(cx, &frame.view(), result));
        self.hook_ends(v, frame.task, (hook, rsp), context, frame.pending.as_ref(), result);
        let summary = frame.summary.clone();
        for effect in &summary.effects {
            if let Effect::Alloc { class, size, zeroed, page, cache, realloc } = effect
                && result != 0
                && result < ERRORS
            {
                let start = if *page { self.state.page_address(result) } else { result };
                // A size from a pool or cache: its objects lie directly behind each other.
                let packed = matches!(size, Len::Deref(_));
                let size = self.size(&frame, hook, *size);
                let zeroed = match zeroed {
                    Zeroed::No => false,
                    Zeroed::Yes => true,
                    Zeroed::Gfp(i) => frame
                        .args
                        .get(usize::from(*i))
                        .is_some_and(|gfp| gfp & self.state.world.gfp_zero() != 0),
                };
                let cache = cache.and_then(|i| frame.args.get(usize::from(i)).copied()).unwrap_or(0);
                let old = realloc.and_then(|i| frame.args.get(usize::from(i)).copied());
                self.allocate(v, &frame, *class, (start, size, packed), zeroed, cache, old);
            }
            if let Effect::CreateCache { ctor } = effect
                && result != 0
                && result < ERRORS
            {
                if self.size(&frame, hook, *ctor).is_some_and(|ctor| ctor != 0) {
                    if self.constructed.len() < MAX_TASKS {
                        self.constructed.insert(result);
                    }
                } else {
                    self.constructed.remove(&result);
                }
            }
            if let Effect::Grow { ptr } = effect {
                let addr = self.state.pointer(*ptr, &frame.args);
                if let Some((id, object)) = self.state.objects.at(addr)
                    && object.is_live()
                    && object.class == Class::Slab
                {
                    let mut grown = object.clone();
                    // Written bytes stay as they are; the others can no longer be distinguished from them.
                    grown.defined = true;
                    grown.size = grown.slot_end.saturating_sub(grown.start);
                    self.announce(v, id, grown);
                }
            }
        }
        self.hooks.returned = Some(frame);
    }

    /// The size in bytes that a call of a hook asks for; `None` where it does not say one.
    fn size(&self, frame: &HookFrame, hook: u64, len: Len) -> Option<u64> {
        let Len::Deref(i) = len else { return length(len, &frame.args) };
        let at = self.state.world.hook_args(hook) + usize::from(i);
        frame.args.get(at).copied().filter(|&size| size > 0)
    }

    #[allow(clippy::too_many_arguments)]
    fn allocate(
        &mut self,
        v: usize,
        frame: &HookFrame,
        class: Class,
        (start, size, packed): (u64, Option<u64>, bool),
        zeroed: bool,
        cache: u64,
        realloc: Option<u64>,
    ) {
        // The log holds per-CPU memory by its offset.
        if class == Class::Percpu && self.order.on {
            let size = size.unwrap_or(1).min(1 << 16);
            self.state.order.per_cpu.add(start, size);
            for (from, to) in self.state.order.per_cpu.places(start, size) {
                self.state.order.forget(from, to);
                self.forgotten(v, from, to);
            }
        }
        // A zero-size allocation returns a pointer to no memory; ports are no memory.
        if start < USER_END {
            return;
        }
        let class = if class == Class::Slab && self.state.is_vmalloc(start) { Class::Vmalloc } else { class };
        let inner = self.state.objects.at(start).filter(|(_, o)| o.is_live());
        let adopted = inner.and_then(|(id, object)| {
            // After a reallocation in place, the object keeps its address.
            let in_place = realloc == Some(start) && object.start == start;
            let pool = packed && class == Class::Dma;
            let class = if (object.serial > frame.serial || in_place) && !pool {
                adopted_class(class, object, start, size)?
            } else {
                return None;
            };
            Some((id, object.clone(), class))
        });
        if let Some((id, mut object, class)) = adopted {
            let in_place = realloc == Some(start) && object.serial <= frame.serial;
            if let Some(size) = size
                && start.checked_add(size).is_some_and(|end| end <= object.slot_end)
            {
                object.size = size;
                object.start = start;
            }
            object.class = class;
            if frame.by_driver {
                object.by_driver = true;
                object.module = frame.module;
                object.allocated = frame.stack;
            }
            object.defined = zeroed
                || !object.by_driver
                || in_place
                || realloc.is_some_and(|p| p != 0)
                || self.is_constructed(cache);
            if cache != 0 {
                object.cache = cache;
            }
            return self.announce(v, id, object);
        }
        let Some(size) = size else { return };
        let (base, slot_end) = match class {
            Class::Slab | Class::Managed => (start, start.checked_add(kmalloc_slot(size))),
            Class::Dma if packed => (start, start.checked_add(size.max(1))),
            Class::Cache | Class::Percpu => (start, start.checked_add(size.max(1))),
            Class::Page | Class::Dma => {
                (start, start.checked_add(size).and_then(|end| end.checked_next_multiple_of(PAGE)))
            }
            // The page behind is never mapped.
            Class::Vmalloc => (
                start,
                start
                    .checked_add(size)
                    .and_then(|end| end.checked_next_multiple_of(PAGE))
                    .and_then(|end| end.checked_add(PAGE)),
            ),
            Class::Io => (
                start & !(PAGE - 1),
                start
                    .checked_add(size)
                    .and_then(|end| end.checked_next_multiple_of(PAGE))
                    .and_then(|end| end.checked_add(PAGE)),
            ),
        };
        let Some(slot_end) = slot_end else { return };
        let object = Object {
            base,
            slot_end,
            start,
            size,
            class,
            cache,
            by_driver: frame.by_driver,
            defined: zeroed
                || !frame.by_driver
                || class == Class::Io
                || realloc.is_some_and(|p| p != 0)
                || self.is_constructed(cache),
            escaped: false,
            allocated: frame.stack,
            freed: None,
            module: frame.module.filter(|_| frame.by_driver),
            serial: 0,
        };
        if self.order.on {
            self.state.order.forget(base, slot_end);
        }
        let Some((id, gone)) = self.state.objects.add(object) else { return };
        for object in gone {
            self.forgotten(v, object.base, object.slot_end);
        }
        if let Some(object) = self.state.objects.get(id).cloned() {
            self.announce(v, id, object);
        }
    }

    /// Whether objects of the cache are as their constructor left them.
    fn is_constructed(&self, cache: u64) -> bool {
        cache != 0 && self.constructed.contains(&cache)
    }

    fn announce(&mut self, v: usize, id: ObjectId, object: Object) {
        if let Some(place) = self.state.objects.get_mut(id) {
            *place = object.clone();
        }
        if self.order.on && object.class == Class::Dma {
            self.state.order.share(object.base, object.slot_end);
        }
        self.each(v, None, |checker, cx| checker.allocated(cx, id, &object));
        self.definedness.allocated(&object);
    }

    #[allow(clippy::too_many_arguments)]
    fn free(
        &mut self,
        v: usize,
        task: u64,
        frame: &HookFrame,
        ptr: u64,
        classes: &[Class],
        cache: Option<u64>,
        has_out: bool,
    ) {
        if self.order.on && classes.contains(&Class::Percpu) {
            self.state.order.per_cpu.remove(ptr);
        }
        if !(USER_END..ERRORS).contains(&ptr) {
            return;
        }
        let found = self.state.objects.at(ptr).map(|(id, object)| (id, object.clone()));
        let (base, end, allocated) =
            found.as_ref().map_or((ptr, ptr.saturating_add(1), 0), |(_, o)| (o.base, o.slot_end, o.serial));
        if self.hooks.is_freeing(task, base, end, allocated) {
            return;
        }
        let context = self.vcpus[v].context.filter(|_| has_out);
        let judged = frame.named && context.is_some();
        let fault = |what, object: Option<Object>, detail: String| FreeFault {
            what,
            function: frame.summary.name.clone(),
            ptr,
            object,
            detail,
        };
        let Some((id, object)) = found else {
            if judged && self.state.modules.contains(ptr) {
                let fault = fault(BadFree::Invalid, None, "memory of a module".to_owned());
                self.each(v, context, |checker, cx| checker.bad_free(cx, &fault));
            }
            return;
        };
        let right_start = ptr == object.start || ptr == object.base && !frame.named;
        let right_class = classes.is_empty() || classes.contains(&object.class);
        let right_cache = match (object.class, cache) {
            (Class::Cache, Some(cache)) => object.cache == 0 || cache == 0 || cache == object.cache,
            _ => true,
        };
        if !object.is_live() {
            // Only what the driver's own call does is certainly the driver's fault. Pages change owners
            // unseen: the kernel's own free of a page shows that the page was allocated again since. So does
            // a pool that frees a page of objects that were freed into it.
            let pages = classes.iter().any(|class| matches!(class, Class::Page | Class::Dma));
            let unseen = !frame.named && (!right_class || pages);
            if context.is_some() && (frame.named || object.by_driver) && !unseen {
                let fault = fault(BadFree::Double, Some(object), String::new());
                self.each(v, context, |checker, cx| checker.bad_free(cx, &fault));
            } else {
                self.forget(object.base, object.slot_end);
            }
        } else if !judged {
            if right_start {
                self.freed(v, id, frame.stack);
            }
        } else if !(object.by_driver || right_start && right_class)
            && let Some(grave) = self.state.objects.grave(ptr).cloned()
        {
            let detail = "and the memory has gone to others since".to_owned();
            let fault = fault(BadFree::Double, Some(grave.object), detail);
            self.each(v, context, |checker, cx| checker.bad_free(cx, &fault));
        } else if !right_start {
            // A page may be freed through any address in it, and the kernel's own objects may hold parts of
            // their own.
            if object.by_driver && object.class != Class::Io {
                let fault = fault(BadFree::Invalid, Some(object), String::new());
                self.each(v, context, |checker, cx| checker.bad_free(cx, &fault));
                self.disown(id);
            }
        } else if !right_class || !right_cache {
            let detail = if right_class { "of another cache".to_owned() } else { String::new() };
            let fault = fault(BadFree::Mismatched, Some(object), detail);
            self.each(v, context, |checker, cx| checker.bad_free(cx, &fault));
            self.disown(id);
        } else {
            self.freed(v, id, frame.stack);
        }
    }

    /// Marks a wrongly freed object as escaped: one report is enough, so it is no leak as well.
    fn disown(&mut self, id: ObjectId) {
        if let Some(object) = self.state.objects.get_mut(id) {
            object.escaped = true;
        }
    }

    fn freed(&mut self, v: usize, id: ObjectId, stack: StackId) {
        let gone = self.state.objects.free(id, stack);
        for object in gone {
            self.forgotten(v, object.base, object.slot_end);
        }
        if let Some(object) = self.state.objects.get(id).cloned() {
            self.each(v, None, |checker, cx| checker.freed(cx, id, &object));
            self.definedness.freed(&object);
            if self.order.on {
                self.state.order.forget(object.base, object.slot_end);
            }
        }
    }
}

/// The class of an object that an outer allocator returns, where the inner object becomes its result. `None`
/// where it does not.
fn adopted_class(outer: Class, inner: &Object, start: u64, size: Option<u64>) -> Option<Class> {
    use Class::{Cache, Dma, Io, Managed, Page, Percpu, Slab, Vmalloc};
    let same = inner.start == start;
    match (outer, inner.class) {
        (Managed, Slab | Managed) => Some(Managed),
        (Io, Io) => Some(Io),
        _ if !same => None,
        (Dma, _) => Some(Dma),
        // Large kmalloc takes pages. Small objects lie in pages that the slab has just taken: those are not
        // the same.
        (Slab, Page) => (size? > 8192).then_some(Slab),
        (Slab, class @ (Slab | Vmalloc)) => Some(class),
        (Slab | Cache, Slab | Cache) => Some(outer),
        (Vmalloc, class @ (Vmalloc | Slab)) => Some(class),
        (Page, Page) => Some(Page),
        (Percpu, Percpu) => Some(Percpu),
        _ => None,
    }
}
