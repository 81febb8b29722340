//! Hooked functions: allocations and frees, by the driver and by the kernel.
//!
//! Allocators call each other. The innermost one makes the object. An outer one whose result lies in that
//! object takes it over, with the size that its caller asked for. The outermost free of a pointer is judged;
//! the frees inside it are its own business.

use super::Replay;
use super::hook_facts::HookFacts;
use super::requests::{PAGE, REDZONE, Request, Wanted, adopted_class};
use crate::checker::{BadFree, FreeFault, Hooked, PassedList};
use crate::machine::{LARGEST_SLAB, Object, ObjectId, USER_END, length};
use crate::order::Pending;
use crate::stacks::{MAX_FRAMES, OuterId, StackId, same_stack};
use guardrail_knowledge::effect::{Class, Effect, Len, Zeroed};
use guardrail_trace::event::Head;
use rustc_hash::FxHashMap;
use std::sync::Arc;

const MAX_TASKS: usize = 8192;
const MAX_NESTED: usize = 64;
/// Results from here up are error codes.
const ERRORS: u64 = u64::MAX - 4094;

/// A hooked call that has not returned.
#[derive(Clone, Debug)]
pub(super) struct HookFrame {
    /// The number of the hook.
    number: u64,
    /// How many of the call's values are arguments.
    own_args: usize,
    call: Hooked,
    /// The driver called this function itself, not another one that ended with a tail call to it.
    named: bool,
    /// The serial number of the newest object when the call began.
    serial: u64,
    /// The pointer that it frees.
    freeing: Option<u64>,
    /// Index of the context that was out of the driver.
    context: Option<usize>,
    task: u64,
    /// Its effects on locks and order at its return.
    pending: Option<Pending>,
    /// It has returned neither 0 nor an error.
    made: bool,
}

impl HookFrame {
    /// What distinguishes the call from all others.
    fn key(&self) -> (u64, u64) {
        (self.call.rsp, self.number)
    }

    /// The value of an argument; `None` where the log does not hold it.
    fn arg(&self, i: u8) -> Option<u64> {
        self.call.args.get(usize::from(i)).copied()
    }
}

/// Calls of hooked functions that have not returned, by task.
#[derive(Debug, Default)]
pub(super) struct HookFrames {
    /// A task without such calls may have an empty list, for its next ones.
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
            && same_stack(last.call.rsp, rsp)
            && (last.call.rsp < rsp || last.call.rsp == rsp && Some(last.number) == hook)
        {
            self.tasks.remove(&last.key());
            frames.pop();
        }
    }

    fn push(&mut self, frame: HookFrame) {
        if self.by_task.len() >= MAX_TASKS || self.tasks.len() >= MAX_TASKS * MAX_NESTED {
            self.make_room();
        }
        let frames = self.by_task.entry(frame.task).or_default();
        if frames.len() >= MAX_NESTED {
            let old = frames.remove(0);
            self.tasks.remove(&old.key());
        }
        self.tasks.insert(frame.key(), frame.task);
        frames.push(frame);
    }

    #[cold]
    fn make_room(&mut self) {
        self.by_task.retain(|_, frames| !frames.is_empty());
        if self.by_task.len() >= MAX_TASKS || self.tasks.len() >= MAX_TASKS * MAX_NESTED {
            self.by_task.clear();
            self.tasks.clear();
        }
    }

    fn get(&self, hook: u64, rsp: u64) -> Option<&HookFrame> {
        let task = self.tasks.get(&(rsp, hook))?;
        self.by_task.get(task)?.iter().rfind(|f| f.key() == (rsp, hook))
    }

    fn pop(&mut self, hook: u64, rsp: u64) -> Option<HookFrame> {
        let task = self.tasks.remove(&(rsp, hook))?;
        let frames = self.by_task.get_mut(&task)?;
        let at = frames.iter().rposition(|f| f.key() == (rsp, hook))?;
        Some(frames.remove(at))
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
        let facts = self.hook_facts.of(self.state.world.as_ref(), hook);
        let Some(HookFacts { summary, args: own_args, address: entry, returns }) = facts else { return };
        if let Some(Effect::Violation { rule, stack, main }) = summary.effects.first() {
            let arg = |i: u8| args.get(usize::from(i)).copied().unwrap_or(0);
            let text = args.get(own_args..).unwrap_or_default();
            return self.violation(v, [arg(*rule), arg(*stack), arg(*main)], text);
        }
        self.hooks.over(task, rsp, Some(hook));
        // A driver's own stack may have been taken over by another task since it was in the driver.
        let own = self.own_stack_at(rsp);
        let context = own.or(self.vcpus[v].context);
        let out = context
            .and_then(|c| self.contexts.get(c))
            .filter(|context| context.task == task || own.is_some())
            .and_then(|context| Some((context, context.out()?)))
            .filter(|(_, out)| rsp <= out.entry_rsp && same_stack(rsp, out.entry_rsp));
        // The return address shows whether it is this call. A driver that left with a jump does not run
        // again, and its task continues in the kernel at any depth of stack.
        let direct = out.is_some_and(|(context, out)| {
            out.entry_rsp == rsp && context.return_of(out).is_none_or(|r| r == ret)
        });
        let target = entry.wrapping_add(self.state.slide);
        let named = out.is_some_and(|(_, out)| direct && (entry == 0 || out.target == target));
        let mut stack = Vec::with_capacity(MAX_FRAMES);
        stack.extend((entry != 0).then_some(target));
        let outer = out.map_or(OuterId::default(), |(context, _)| context.outer());
        if let Some((context, out)) = out {
            stack.extend((!direct).then_some(ret));
            stack.extend((!out.jump || direct).then_some(out.ret));
            context.callers(&mut stack, MAX_FRAMES);
        } else {
            stack.push(ret);
        }
        let module_at = |at| self.state.modules.at(at).map(|(index, _)| index);
        let call = Hooked {
            rsp,
            ret,
            args: args.into(),
            by_driver: direct || self.state.modules.contains(ret),
            module: out.and_then(|(_, out)| module_at(out.pc)).or_else(|| module_at(ret)),
            stack: self.state.stacks.intern(&stack, outer),
            summary: Arc::clone(&summary),
        };
        let mut frame = HookFrame {
            number: hook,
            own_args,
            call,
            named,
            serial: self.state.objects.serial(),
            freeing: None,
            context: context.filter(|_| out.is_some()),
            task,
            pending: None,
            made: false,
        };
        for effect in &summary.effects {
            if let Effect::Free { ptr, classes, cache } = effect {
                let ptr = self.state.pointer(*ptr, args);
                self.free(v, &frame, ptr, classes, cache.and_then(|i| frame.arg(i)));
                frame.freeing = Some(ptr);
            }
        }
        self.each(v, frame.context, |checker, cx| checker.hook_called(cx, &frame.call));
        frame.pending = self.hook_begins(v, task, hook, frame.context, &frame.call);
        if !returns {
            return self.hook_ends(v, task, frame.key(), frame.context, frame.pending.as_ref(), 0);
        }
        self.hooks.push(frame);
    }

    /// The log holds the elements of a list that was passed to a hooked function.
    pub(super) fn list(&mut self, v: usize, head: Head, operands: &[u64]) {
        let (Some(&rsp), Some(words)) = (operands.first(), operands.get(2..)) else { return };
        let (hook, index) = (head.large, usize::from(head.small));
        let open = self.hooks.get(hook, rsp).cloned();
        let returned = open.is_none();
        let Some(frame) = open.or_else(|| self.hooks.returned.clone()) else { return };
        if frame.key() == (rsp, hook) {
            self.objects_in(v, &frame, returned, words);
            let list = PassedList { index, returned, words };
            self.each(v, frame.context, |checker, cx| checker.hook_list(cx, &frame.call, list));
        }
    }

    /// The objects of an array that a call has filled, or whose objects it frees.
    fn objects_in(&mut self, v: usize, frame: &HookFrame, returned: bool, words: &[u64]) {
        let summary = Arc::clone(&frame.call.summary);
        for effect in &summary.effects {
            match effect {
                Effect::AllocList { class, size, zeroed, cache } if returned && frame.made => {
                    let kind =
                        Wanted { class: *class, size: *size, zeroed: *zeroed, cache: *cache, realloc: None };
                    for &start in words.iter().filter(|&&start| start < ERRORS) {
                        self.allocate(v, frame, self.request(frame, kind, start));
                    }
                }
                Effect::FreeList { classes, cache } if !returned => {
                    // Where the cache is null, each object knows its own.
                    let cache = cache.and_then(|i| frame.arg(i)).filter(|&cache| cache != 0);
                    for &object in words {
                        // A bulk allocation that fails gives back what it has, which nobody saw it take.
                        let known = self.state.objects.at(object).map(|(_, known)| known);
                        let dead = known.filter(|known| !frame.named && !known.is_live());
                        match dead.map(|dead| (dead.base, dead.slot_end)) {
                            Some((base, end)) => self.forget(base, end),
                            None => self.free(v, frame, object, classes, cache),
                        }
                    }
                }
                Effect::Alias { .. } if !returned => {
                    for &page in words.iter().filter(|&&page| page != 0) {
                        self.definedness.define(self.state.page_address(page), PAGE);
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn hook_return(&mut self, v: usize, hook: u64, rsp: u64, result: u64) {
        self.finish_block(v);
        let Some(mut frame) = self.hooks.pop(hook, rsp) else { return };
        self.hooks.returned = None;
        let context = frame.context;
        self.each(v, context, |checker, cx| checker.hook_returned(cx, &frame.call, result));
        self.hook_ends(v, frame.task, (hook, rsp), context, frame.pending.as_ref(), result);
        let made = result != 0 && result < ERRORS;
        frame.made = made;
        for effect in &frame.call.summary.effects {
            match *effect {
                Effect::Alloc { class, size, zeroed, page, cache, realloc } if made => {
                    let start = if page { self.state.page_address(result) } else { result };
                    let wanted = Wanted { class, size, zeroed, cache, realloc };
                    self.allocate(v, &frame, self.request(&frame, wanted, start));
                }
                Effect::CreateCache { ctor, flags } if made => self.cache_made(&frame, result, ctor, flags),
                Effect::Alias { count } if made => {
                    let pages = frame.arg(count).unwrap_or(0) & u64::from(u32::MAX);
                    self.forget(result, result.saturating_add(pages * PAGE));
                }
                Effect::Grow { ptr } => self.grow(v, self.state.pointer(ptr, &frame.call.args)),
                _ => {}
            }
        }
        self.hooks.returned = Some(frame);
    }

    /// A cache was made, perhaps where another one was.
    fn cache_made(&mut self, frame: &HookFrame, cache: u64, ctor: Len, flags: Len) {
        let constructed = self.size(frame, ctor).is_some_and(|ctor| ctor != 0);
        let flags = self.size(frame, flags).unwrap_or(0);
        let typesafe = flags & self.state.world.slab_typesafe() != 0;
        for (caches, is) in [(&mut self.constructed, constructed), (&mut self.typesafe, typesafe)] {
            if !is {
                caches.remove(&cache);
            } else if caches.len() < MAX_TASKS {
                caches.insert(cache);
            }
        }
    }

    /// The object at `addr` is as large as its slot from now on.
    fn grow(&mut self, v: usize, addr: u64) {
        if let Some((id, object)) = self.state.objects.at(addr)
            && object.is_live()
            && object.class == Class::Slab
        {
            let mut grown = object.clone();
            // Written bytes stay as they are; the others can no longer be distinguished from them.
            grown.defined = true;
            grown.size = self.room(&grown);
            self.announce(v, id, grown, None);
        }
    }

    /// The bytes of a slab object's slot that its user may have.
    fn room(&self, object: &Object) -> u64 {
        let around = if self.state.world.redzones() && object.size <= LARGEST_SLAB { REDZONE } else { 0 };
        object.slot_end.saturating_sub(object.start).saturating_sub(around)
    }

    /// The size in bytes that a call of a hook asks for; `None` where it does not say one.
    fn size(&self, frame: &HookFrame, len: Len) -> Option<u64> {
        let Len::Deref(i) = len else { return length(len, &frame.call.args) };
        let at = frame.own_args + usize::from(i);
        frame.call.args.get(at).copied().filter(|&size| size > 0)
    }

    /// What a call has allocated at `start`.
    fn request(&self, frame: &HookFrame, wanted: Wanted, start: u64) -> Request {
        let Wanted { class, size, zeroed, cache, realloc } = wanted;
        let cache = cache.and_then(|i| frame.arg(i)).unwrap_or(0);
        let old = realloc.and_then(|i| frame.arg(i)).filter(|&old| old != 0);
        let zeroed = match zeroed {
            Zeroed::No => false,
            Zeroed::Yes => true,
            Zeroed::Gfp(i) => frame.arg(i).is_some_and(|gfp| gfp & self.state.world.gfp_zero() != 0),
        };
        Request {
            class: if class == Class::Slab && self.state.is_vmalloc(start) { Class::Vmalloc } else { class },
            start,
            size: self.size(frame, size),
            // A size from a pool or cache: its objects lie directly behind each other.
            packed: matches!(size, Len::Deref(_)),
            redzones: self.state.world.redzones(),
            cache,
            old,
            defined: zeroed || old.is_some() || cache != 0 && self.constructed.contains(&cache),
        }
    }

    fn allocate(&mut self, v: usize, frame: &HookFrame, request: Request) {
        let Request { class, start, size, .. } = request;
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
        // An object that is freed already stays so, though the allocator finds room for it where it lies.
        if request.old == Some(start)
            && self.state.objects.at(start).is_some_and(|(_, object)| object.by_driver && !object.is_live())
        {
            return;
        }
        if let Some((id, object)) = self.adopted(frame, &request) {
            return self.announce(v, id, object, frame.context);
        }
        let Some((size, (base, slot_end))) = size.and_then(|size| Some((size, request.slot(size)?))) else {
            return;
        };
        let by_driver = frame.call.by_driver;
        let object = Object {
            base,
            slot_end,
            start,
            size,
            class,
            cache: request.cache,
            by_driver,
            defined: request.defined || !by_driver || class == Class::Io,
            escaped: false,
            allocated: frame.call.stack,
            freed: None,
            module: frame.call.module.filter(|_| by_driver),
            serial: 0,
            held_at: None,
        };
        self.state.order.forget(base, slot_end);
        let Some((id, gone)) = self.state.objects.add(object) else { return };
        for object in gone {
            self.gone(v, &object);
        }
        if let Some(object) = self.state.objects.get(id).cloned() {
            self.announce(v, id, object, frame.context);
        }
    }

    /// The object of an inner allocator that a call takes over, as it is from then on; `None` where the call
    /// makes a new object.
    fn adopted(&self, frame: &HookFrame, request: &Request) -> Option<(ObjectId, Object)> {
        let (start, size) = (request.start, request.size);
        let (id, inner) = self.state.objects.at(start).filter(|(_, o)| o.is_live())?;
        // After a reallocation in place, the object keeps its address.
        let in_place = request.old == Some(start) && inner.start == start;
        let pool = request.packed && request.class == Class::Dma;
        if pool || !in_place && inner.serial <= frame.serial {
            return None;
        }
        let mut object = inner.clone();
        object.class = adopted_class(request.class, inner, start, size)?;
        if let Some(size) = size
            && start.checked_add(size).is_some_and(|end| end <= object.slot_end)
        {
            object.size = size;
            object.start = start;
        }
        if frame.call.by_driver {
            object.by_driver = true;
            object.module = frame.call.module;
            object.allocated = frame.call.stack;
        }
        object.defined = request.defined || !object.by_driver;
        if request.cache != 0 {
            object.cache = request.cache;
        }
        Some((id, object))
    }

    /// An object was allocated in a call of this context, or has changed.
    fn announce(&mut self, v: usize, id: ObjectId, object: Object, context: Option<usize>) {
        if let Some(place) = self.state.objects.get_mut(id) {
            *place = object.clone();
        }
        if self.order.on && object.class == Class::Dma {
            self.state.order.share(object.base, object.slot_end);
        }
        self.each(v, None, |checker, cx| checker.allocated(cx, id, &object));
        self.definedness.allocated(&object);
        self.definedness.provenance.allocated(context, &object);
    }

    fn free(&mut self, v: usize, frame: &HookFrame, ptr: u64, classes: &[Class], cache: Option<u64>) {
        if classes.contains(&Class::Percpu) {
            self.state.order.per_cpu.remove(ptr);
        }
        if !(USER_END..ERRORS).contains(&ptr) {
            return;
        }
        let found = self.state.objects.at(ptr).map(|(id, object)| (id, object.clone()));
        let (base, end, allocated) =
            found.as_ref().map_or((ptr, ptr.saturating_add(1), 0), |(_, o)| (o.base, o.slot_end, o.serial));
        if self.hooks.is_freeing(frame.task, base, end, allocated) {
            return;
        }
        let judged = frame.named && frame.context.is_some();
        let verdict = match &found {
            Some((_, object)) => self.judge_free(frame, ptr, object, classes, cache),
            None if judged && self.state.modules.contains(ptr) => {
                Free::Wrong(BadFree::Invalid, None, "memory of a module")
            }
            None => Free::Nothing,
        };
        match (verdict, found) {
            (Free::Right, Some((id, _))) => self.freed(v, id, frame.call.stack),
            (Free::Unseen, Some((_, object))) => self.forget(object.base, object.slot_end),
            (Free::Wrong(what, object, detail), found) => {
                let function = frame.call.summary.name.clone();
                let fault = FreeFault { what, function, ptr, object, detail };
                self.each(v, frame.context, |checker, cx| checker.bad_free(cx, &fault));
                if what != BadFree::Double
                    && let Some((id, _)) = found
                {
                    self.disown(id);
                }
            }
            _ => {}
        }
    }

    /// What a call means for the object that it frees.
    fn judge_free(
        &self,
        frame: &HookFrame,
        ptr: u64,
        object: &Object,
        classes: &[Class],
        cache: Option<u64>,
    ) -> Free {
        let wrong = |what, object: &Object, detail| Free::Wrong(what, Some(object.clone()), detail);
        let right_start = ptr == object.start || !frame.named && self.is_inner_start(ptr, object);
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
            return if frame.context.is_some() && (frame.named || object.by_driver) && !unseen {
                wrong(BadFree::Double, object, "")
            } else {
                Free::Unseen
            };
        }
        if !frame.named || frame.context.is_none() {
            return if right_start { Free::Right } else { Free::Nothing };
        }
        if !(object.by_driver || right_start && right_class)
            && let Some(grave) = self.state.objects.grave(ptr)
        {
            return wrong(BadFree::Double, grave, "and the memory has gone to others since");
        }
        if right_start && right_class && right_cache {
            return Free::Right;
        }
        if right_start {
            return wrong(BadFree::Mismatched, object, if right_class { "of another cache" } else { "" });
        }
        // A page may be freed through any address in it, and the kernel's own objects may hold parts of
        // their own.
        if object.by_driver && object.class != Class::Io {
            wrong(BadFree::Invalid, object, "")
        } else {
            Free::Nothing
        }
    }

    /// Whether `ptr` is where the allocator inside which an object lies has put its own.
    fn is_inner_start(&self, ptr: u64, object: &Object) -> bool {
        let of_slab = matches!(object.class, Class::Slab | Class::Cache | Class::Managed);
        let redzone = if of_slab && self.state.world.redzones() { REDZONE } else { 0 };
        ptr == object.base || ptr == object.base.saturating_add(redzone)
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
            self.gone(v, &object);
        }
        if let Some(object) = self.state.objects.get(id).cloned() {
            self.each(v, None, |checker, cx| checker.freed(cx, id, &object));
            let typesafe = self.typesafe.contains(&object.cache);
            self.definedness.provenance.freed(&object, typesafe);
            if !typesafe {
                self.definedness.freed(&object);
            }
            self.state.order.forget(object.base, object.slot_end);
        }
    }
}

/// What a call means for the object that it frees.
enum Free {
    Right,
    /// The object was freed before, or its memory has another owner, and no event said so.
    Unseen,
    /// The call frees nothing that is known.
    Nothing,
    Wrong(BadFree, Option<Object>, &'static str),
}
