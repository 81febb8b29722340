//! The contexts of accesses: call stacks and circumstances, each kept once.

use crate::checker::Cx;
use crate::checkers::names;
use crate::level::Level;
use crate::machine::{Context, State, Version, describe};
use crate::order::{Entry, LockId};
use crate::stacks::{CallTrace, MAX_FRAMES, OuterId, StackId};
use guardrail_finding::ContextInfo;
use guardrail_knowledge::chart::Callback;
use guardrail_knowledge::effect::LockMode;
use guardrail_knowledge::role::Role;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// More stacks or scenes than this are not distinguished. From half of it on, stacks get no outer part.
const MAX_STACKS: usize = 1 << 18;
const MAX_SCENES: usize = 1 << 18;
/// Most vCPUs whose last scene is kept.
const MAX_CPUS: usize = 512;
/// The charts of what interrupt handlers schedule to do their work.
const SCHEDULED: [&str; 2] = ["napi", "tasklet"];

/// Call stacks without the innermost address, by number; 0 means that there is no stack.
#[derive(Debug, Default)]
pub(super) struct CallStacks {
    ids: FxHashMap<u64, u32>,
    table: Vec<(Box<[u64]>, OuterId)>,
    /// The stack that was looked up last, and its number.
    last: Option<(Version, u32)>,
    buffer: Vec<u64>,
}

impl CallStacks {
    /// The number of a context's stack below the innermost address.
    pub fn of(&mut self, context: &Context) -> u32 {
        let version = context.version();
        if let Some((last, id)) = self.last
            && last == version
        {
            return id;
        }
        let id = self.find(context);
        // From here on, stacks lose their outer parts one by one.
        self.last = (self.table.len() < MAX_STACKS / 2).then_some((version, id));
        id
    }

    fn find(&mut self, context: &Context) -> u32 {
        self.buffer.clear();
        context.callers(&mut self.buffer, MAX_FRAMES - 1);
        let outer = if self.table.len() < MAX_STACKS / 2 { context.outer() } else { OuterId::default() };
        let mut hasher = FxHasher::default();
        (&self.buffer, outer).hash(&mut hasher);
        let hash = hasher.finish();
        match self.ids.get(&hash) {
            Some(&id) => id,
            None if self.table.len() >= MAX_STACKS => 0,
            None => {
                self.table.push((self.buffer.as_slice().into(), outer));
                let id = self.table.len() as u32;
                self.ids.insert(hash, id);
                id
            }
        }
    }

    /// The whole stack of an access, innermost address first.
    pub fn stack(&self, pc: u64, callers: u32) -> CallTrace {
        let mut trace = CallTrace::at(pc);
        if let Some((near, outer)) = (callers as usize).checked_sub(1).and_then(|i| self.table.get(i)) {
            trace.near.extend_from_slice(near);
            trace.outer = *outer;
        }
        trace
    }
}

/// The circumstances of an access.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scene {
    task: u64,
    pid: u32,
    pub level: Level,
    /// Number of the vCPU.
    pub cpu: u32,
    held: Vec<(LockId, LockMode, StackId)>,
    states: u32,
    /// The driver shuts something down.
    pub teardown: bool,
    /// The driver is removed, or its device is.
    pub removes: bool,
    /// The device made the kernel run this: an interrupt handler, or what such a handler schedules.
    pub by_device: bool,
    /// It is known when the kernel may run this: a chart says so, or it is an interrupt, or the module's own function.
    pub placed: bool,
    /// The callback that ran: chart, callback and instance; `None` where no chart knows it.
    pub callback: Option<(usize, usize, u32)>,
}

/// Whether the kernel called the driver to take something away.
fn is_teardown(state: &State, run: &Entry) -> bool {
    state.order.described(run).is_some_and(|callback| callback.stops) || Role::Unloads.has(&run.caller)
}

/// Whether nothing of the driver's state is used after this run.
fn removes(state: &State, run: &Entry) -> bool {
    let ends = |callback: &Callback| callback.stops && callback.leaves.is_some() && !callback.frozen;
    state.order.described(run).is_some_and(ends) || Role::Unloads.has(&run.caller)
}

/// Whether the kernel called the driver because of an interrupt of its device.
fn is_by_device(state: &State, level: Level, run: Option<&Entry>) -> bool {
    let chart = run.and_then(|run| run.callback).and_then(|(chart, ..)| state.order.charts().get(chart));
    level == Level::Hardirq || chart.is_some_and(|chart| SCHEDULED.contains(&chart.name.as_str()))
}

/// Whether it is known when the kernel may make this call of the driver.
fn is_placed(run: &Entry) -> bool {
    run.callback.is_some() || Role::Initializes.has(&run.caller) || Role::Unloads.has(&run.caller)
}

/// What a scene depends on, apart from the held locks. Comparing it is cheaper than making the scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    task: u64,
    pid: u32,
    level: Level,
    /// The last entry's number, and how many entries are open.
    serial: u64,
    entries: usize,
    /// The chart and the state of the object whose callback runs.
    state: Option<(usize, usize)>,
}

/// The last scene of a vCPU.
#[derive(Debug)]
struct Last {
    key: Key,
    held: Vec<(LockId, LockMode, StackId)>,
    id: u32,
}

/// Scenes, by number; 0 means that there is no scene.
#[derive(Debug, Default)]
pub(super) struct Scenes {
    ids: FxHashMap<Arc<Scene>, u32>,
    table: Vec<Arc<Scene>>,
    /// The last scene of each vCPU.
    last: Vec<Option<Last>>,
    states: Vec<Arc<[String]>>,
    state_ids: FxHashMap<Arc<[String]>, u32>,
}

impl Scenes {
    /// The number of the current scene; 0 where the context is not known.
    pub fn of(&mut self, cx: &Cx<'_>) -> u32 {
        let Some(context) = cx.context else { return 0 };
        let run = context.order.entries.last();
        let callback = run.and_then(|run| run.callback);
        let key = Key {
            task: context.task,
            pid: context.pid,
            level: context.level,
            serial: run.map_or(0, |run| run.serial),
            entries: context.order.entries.len(),
            state: callback
                .and_then(|(chart, _, instance)| Some((chart, cx.state.order.state(chart, instance)?))),
        };
        let held = context.order.held.iter().map(|a| (a.lock, a.mode, a.stack));
        if let Some(Some(last)) = self.last.get(cx.cpu as usize)
            && last.key == key
            && held.clone().eq(last.held.iter().copied())
        {
            return last.id;
        }
        let id = self.make(cx, context, run, held.clone().collect());
        let cpu = cx.cpu as usize;
        if cpu >= self.last.len() && cpu < MAX_CPUS {
            self.last.resize_with(cpu + 1, || None);
        }
        if let Some(last) = self.last.get_mut(cpu) {
            *last = Some(Last { key, held: held.collect(), id });
        }
        id
    }

    fn make(
        &mut self,
        cx: &Cx<'_>,
        context: &Context,
        run: Option<&Entry>,
        held: Vec<(LockId, LockMode, StackId)>,
    ) -> u32 {
        let states = run.map_or_else(Vec::new, |run| cx.state.order.states_of(run));
        let scene = Scene {
            task: context.task,
            pid: context.pid,
            level: context.level,
            cpu: cx.cpu,
            held,
            states: self.states_id(states),
            teardown: context.order.entries.iter().any(|run| is_teardown(cx.state, run)),
            removes: context.order.entries.iter().any(|run| removes(cx.state, run)),
            by_device: is_by_device(cx.state, context.level, run),
            placed: context.level >= Level::Hardirq || context.order.entries.iter().any(is_placed),
            callback: run.and_then(|run| run.callback),
        };
        match self.ids.get(&scene) {
            Some(&id) => id,
            None if self.table.len() >= MAX_SCENES => 0,
            None => {
                let scene = Arc::new(scene);
                self.table.push(scene.clone());
                let id = self.table.len() as u32;
                self.ids.insert(scene, id);
                id
            }
        }
    }

    fn states_id(&mut self, states: Vec<String>) -> u32 {
        if states.is_empty() {
            return 0;
        }
        if let Some(&id) = self.state_ids.get(states.as_slice()) {
            return id;
        }
        if self.states.len() >= MAX_SCENES {
            return 0;
        }
        let states: Arc<[String]> = states.into();
        self.states.push(states.clone());
        let id = self.states.len() as u32;
        self.state_ids.insert(states, id);
        id
    }

    /// The scene with a number; `None` for 0.
    pub fn get(&self, id: u32) -> Option<&Scene> {
        (id as usize).checked_sub(1).and_then(|i| self.table.get(i)).map(|scene| &**scene)
    }

    /// Describes a scene for a report.
    pub fn describe(&self, state: &State, id: u32) -> ContextInfo {
        let Some(scene) = self.get(id) else { return describe(state, None, 0) };
        let context = Context::new(scene.task, scene.level, scene.pid);
        let mut who = describe(state, Some(&context), scene.cpu);
        who.locks = names::held(state, scene.held.iter().copied());
        let states = (scene.states as usize).checked_sub(1).and_then(|i| self.states.get(i));
        who.states = states.map_or_else(Vec::new, |states| states.to_vec());
        who
    }
}
