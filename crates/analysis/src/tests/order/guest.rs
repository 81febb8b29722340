//! A guest whose tasks and interrupts touch places; a checker records how the touches are ordered.

use crate::checker::{Checker, Cx};
use crate::machine::{ModuleMap, Range, Region, World};
use crate::order::{
    Acquired, Entry, LockId, Now, Parts, Step,
    chart::{CURRENT, Call, Callback, Chart, Hand as By, Set, State},
};
use crate::replay::Replay;
use crate::value_flow::{InsnCtx, Value};
use guardrail_knowledge::effect::{
    Class, Effect, Key, Len, LockKind, LockMode, Ptr, Summary, SyncOp, When, Zeroed,
};
use guardrail_trace::event::{Access, EnterFlags, Global, Head, Kind, RegionFlags};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

pub const MODULE: u64 = 0xffff_ffff_c000_0000;
pub const F: u64 = MODULE + 0x100;
pub const G: u64 = MODULE + 0x200;
const TEXT: u64 = 0xffff_ffff_8100_0000;
const SLIDE: u64 = 0x100_0000;
pub const HEAP: u64 = 0xffff_8880_0200_0000;
/// Offset of `preempt_count` from the GS base, and the base of vCPU 0.
pub const PREEMPT: u64 = 0x1234;
pub const GS: u64 = 0xffff_8880_3000_0000;

/// Kernel functions; the first are hooks.
pub const FUNCTIONS: [&str; 61] = [
    "kmalloc",
    "kfree",
    "dma_alloc",
    "alloc_percpu",
    "rtnl_lock",
    "rtnl_unlock",
    "bus_probe",
    "unregister_netdev",
    "_raw_spin_lock",
    "_raw_spin_unlock",
    "mutex_lock_interruptible",
    "_raw_read_lock",
    "_raw_read_unlock",
    "_raw_write_lock",
    "_raw_write_unlock",
    "complete",
    "wait_for_completion",
    "__rcu_read_lock",
    "__rcu_read_unlock",
    "synchronize_rcu",
    "mod_timer",
    "del_timer",
    "del_timer_sync",
    "call_timer_fn.isra.0",
    "request_irq",
    "free_irq",
    "__handle_irq_event_percpu",
    "process_one_work",
    "vfs_read",
    "net_rx_action",
    "up",
    "handler_caller",
    "thread_caller",
    "ready_line",
    "do_one_initcall",
    "__do_sys_delete_module",
    "tasklet_schedule",
    "tasklet_kill",
    "tasklet_action_common",
    "kthread",
    "wake_up_process",
    "kthread_stop",
    "probe_caller",
    "register_all",
    "iowrite32",
    "request_threaded_irq",
    "synchronize_irq",
    "napi_complete_done",
    "lamp_setup",
    "lamp_on",
    "queue_work",
    "cancel_work_sync",
    "work_caller",
    "suspend_caller",
    "resume_caller",
    "queue_caller",
    "init_caller",
    "poll_caller",
    "request_start",
    "request_end",
    "request_end_all",
];
const HOOKS: usize = 8;

pub fn number(name: &str) -> u64 {
    FUNCTIONS.iter().position(|f| *f == name).expect("a function of the table") as u64
}

/// The code of a module that is not watched; functions named `core/…` lie there.
const CORE: u64 = 0xffff_ffff_c100_0000;
const CORE_FUNCTIONS: [&str; 2] = ["thread_caller", "ready_line"];

/// The address of a function in memory.
pub fn function(name: &str) -> u64 {
    if let Some(name) = name.strip_prefix("core/") {
        return CORE
            + CORE_FUNCTIONS.iter().position(|f| *f == name).expect("a function of core") as u64 * 0x100;
    }
    TEXT + number(name) * 0x100 + SLIDE
}

fn arg(arg: u8) -> Key {
    Key::Arg { arg, offset: 0 }
}

fn lock(kind: LockKind, key: Key, mode: LockMode, when: When) -> Effect {
    Effect::Sync(SyncOp::Lock { kind, key, mode, when, tries: false })
}

fn unlock(kind: LockKind, key: Key, mode: LockMode) -> Effect {
    Effect::Sync(SyncOp::Unlock { kind, key, mode })
}

fn effects(name: &str) -> Vec<Effect> {
    use LockKind::{Mutex, Rcu, Rw, Semaphore, Spin};
    use LockMode::{Exclusive, Shared};
    let alloc = |class, size| Effect::Alloc {
        class,
        size,
        zeroed: Zeroed::Yes,
        page: false,
        cache: None,
        realloc: None,
    };
    let rtnl = Key::Global("rtnl");
    match name {
        "kmalloc" => vec![alloc(Class::Slab, Len::Arg(0))],
        "kfree" => vec![Effect::Free { ptr: Ptr::Arg(0), classes: vec![Class::Slab], cache: None }],
        "dma_alloc" => vec![alloc(Class::Dma, Len::Arg(0))],
        "alloc_percpu" => vec![alloc(Class::Percpu, Len::Arg(0))],
        "rtnl_lock" => vec![lock(Mutex, rtnl, Exclusive, When::Always)],
        "rtnl_unlock" => vec![unlock(Mutex, rtnl, Exclusive)],
        "bus_probe" => vec![
            Effect::Sync(SyncOp::Hold { kind: Mutex, key: arg(0) }),
            Effect::Sync(SyncOp::Hold { kind: Spin, key: arg(2) }),
            Effect::Sync(SyncOp::Acquire { key: arg(1), when: When::Always }),
        ],
        "synchronize_irq" => {
            vec![Effect::Sync(SyncOp::Acquire { key: Key::Global("handlers"), when: When::Always })]
        }
        "napi_complete_done" => {
            vec![Effect::Sync(SyncOp::Release { key: arg(0), word: true })]
        }
        "iowrite32" => vec![Effect::Sync(SyncOp::Release { key: Key::Global("device"), word: false })],
        "_raw_spin_lock" => vec![lock(Spin, arg(0), Exclusive, When::Always)],
        "_raw_spin_unlock" => vec![unlock(Spin, arg(0), Exclusive)],
        "mutex_lock_interruptible" => {
            vec![Effect::Sync(SyncOp::Sleeps { gfp: None }), lock(Mutex, arg(0), Exclusive, When::Zero)]
        }
        "_raw_read_lock" => vec![lock(Rw, arg(0), Shared, When::Always)],
        "_raw_read_unlock" => vec![unlock(Rw, arg(0), Shared)],
        "_raw_write_lock" => vec![lock(Rw, arg(0), Exclusive, When::Always)],
        "_raw_write_unlock" => vec![unlock(Rw, arg(0), Exclusive)],
        "up" => vec![unlock(Semaphore, arg(0), Exclusive)],
        "complete" => vec![Effect::Sync(SyncOp::Release { key: arg(0), word: false })],
        "wait_for_completion" => {
            vec![Effect::Sync(SyncOp::Acquire { key: arg(0), when: When::Always })]
        }
        "__rcu_read_lock" => vec![lock(Rcu, Key::Global("rcu"), Shared, When::Always)],
        "__rcu_read_unlock" => vec![
            Effect::Sync(SyncOp::Release { key: Key::Global("rcu"), word: false }),
            unlock(Rcu, Key::Global("rcu"), Shared),
        ],
        "synchronize_rcu" => vec![
            Effect::Sync(SyncOp::Release { key: Key::Global("grace"), word: false }),
            Effect::Sync(SyncOp::Acquire { key: Key::Global("rcu"), when: When::Always }),
        ],
        _ => Vec::new(),
    }
}

fn state(name: &str, parent: Option<usize>) -> State {
    State { name: name.to_owned(), parent, ..State::default() }
}

fn call(function: &str, from: Set, to: Option<usize>) -> Call {
    Call {
        function: function.to_owned(),
        keys: vec![Some(arg(0))],
        when: When::Always,
        from,
        to,
        nowait: false,
        wakes: 0,
        waits: 0,
        hand: None,
    }
}

fn callback(name: &str, from: &str, states: Set) -> Callback {
    Callback {
        name: name.to_owned(),
        from: vec![from.to_owned()],
        keys: vec![Some(0)],
        states,
        serial: true,
        ..Callback::default()
    }
}

fn charts() -> Vec<Chart> {
    const ANY: Set = Set::MAX;
    let timer = Chart {
        name: "timer".to_owned(),
        deferred: true,
        keys: vec!["timer".to_owned()],
        states: vec![
            state("idle", None),
            State { busy: Some("the timer is pending".to_owned()), ..state("pending", None) },
        ],
        initial: 0,
        callbacks: vec![Callback { enters: Some(0), ..callback("function", "call_timer_fn", 0b10) }],
        calls: vec![
            Call { wakes: 1, ..call("mod_timer", ANY, Some(1)) },
            Call { nowait: true, ..call("del_timer", ANY, Some(0)) },
            Call { waits: 1, ..call("del_timer_sync", ANY, Some(0)) },
        ],
        ..Chart::default()
    };
    let tasklet = Chart {
        name: "tasklet".to_owned(),
        deferred: true,
        keys: vec!["tasklet".to_owned(), "data".to_owned()],
        states: vec![state("idle", None), state("pending", None)],
        callbacks: vec![Callback {
            keys: vec![None, Some(0)],
            enters: Some(0),
            ..callback("function", "tasklet_action_common", ANY)
        }],
        calls: vec![
            Call { keys: vec![Some(arg(0)), None], wakes: 1, ..call("tasklet_schedule", ANY, Some(1)) },
            Call { keys: vec![Some(arg(0)), None], waits: 1, ..call("tasklet_kill", ANY, Some(0)) },
        ],
        ..Chart::default()
    };
    let kthread = Chart {
        name: "kthread".to_owned(),
        deferred: true,
        keys: vec!["task".to_owned()],
        states: vec![state("unborn", None), state("running", None)],
        callbacks: vec![Callback {
            keys: vec![Some(CURRENT)],
            enters: Some(1),
            serial: false,
            ..callback("main", "kthread", ANY)
        }],
        calls: vec![
            Call { wakes: 1, ..call("wake_up_process", ANY, None) },
            Call { waits: 1, ..call("kthread_stop", ANY, None) },
        ],
        ..Chart::default()
    };
    let irq = Chart {
        name: "irq".to_owned(),
        deferred: false,
        keys: vec!["number".to_owned(), "device".to_owned()],
        states: vec![state("free", None), state("used", None), state("on", Some(1))],
        initial: 0,
        callbacks: vec![Callback {
            keys: vec![Some(0), Some(1)],
            ..callback("handler", "__handle_irq_event_percpu", 0b100)
        }],
        calls: vec![
            Call {
                keys: vec![Some(arg(0)), Some(arg(1))],
                when: When::Zero,
                ..call("request_irq", 0b001, Some(2))
            },
            Call { keys: vec![Some(arg(0)), None], ..call("free_irq", 0b100, Some(0)) },
        ],
        ..Chart::default()
    };
    let work = Chart {
        name: "file".to_owned(),
        deferred: false,
        keys: vec!["file".to_owned()],
        states: vec![state("open", None), state("gone", None)],
        initial: 0,
        callbacks: vec![
            Callback { serial: false, ..callback("read", "vfs_read", 0b01) },
            // The argument alone identifies the file, and the callback ends what the others do.
            Callback {
                name: "release".to_owned(),
                from: Vec::new(),
                keys: vec![Some(1)],
                states: 0b01,
                serial: false,
                enters: Some(1),
                leaves: Some((0, When::NonZero)),
                wakes: 0,
                turns: None,
                hand: None,
                frozen: false,
            },
        ],
        calls: vec![Call { ..call("unregister_netdev", 0b01, Some(1)) }],
        pins: true,
        made: false,
    };
    // The line's initial state allows everything that may have been missed.
    let line = Chart {
        name: "line".to_owned(),
        keys: vec!["line".to_owned()],
        states: vec![state("new", None), state("ready", None)],
        callbacks: vec![
            Callback { wakes: 0b10, ..callback("handler", "handler_caller", ANY) },
            callback("thread", "thread_caller", ANY),
        ],
        calls: vec![call("ready_line", 0b01, Some(1))],
        ..Chart::default()
    };
    let device = Chart {
        name: "device".to_owned(),
        keys: vec!["device".to_owned()],
        states: vec![state("here", None)],
        callbacks: vec![Callback {
            serial: false,
            turns: Some(arg(1)),
            ..callback("probe", "probe_caller", ANY)
        }],
        calls: vec![Call { keys: vec![None], wakes: 1, ..call("register_all", ANY, None) }],
        ..Chart::default()
    };
    let item = Chart {
        name: "work".to_owned(),
        deferred: true,
        keys: vec!["work".to_owned(), "wq".to_owned()],
        states: vec![state("idle", None), state("pending", None)],
        callbacks: vec![Callback {
            keys: vec![Some(0), None],
            enters: Some(0),
            ..callback("fn", "work_caller", ANY)
        }],
        calls: vec![
            Call { keys: vec![Some(arg(1)), Some(arg(0))], wakes: 1, ..call("queue_work", ANY, Some(1)) },
            Call { keys: vec![Some(arg(0)), None], waits: 1, ..call("cancel_work_sync", ANY, Some(0)) },
        ],
        ..Chart::default()
    };
    // A wakeup of a device that does not sleep is a reset.
    let power = Chart {
        name: "power".to_owned(),
        keys: vec!["device".to_owned()],
        states: vec![state("awake", None), state("asleep", None)],
        callbacks: vec![
            Callback {
                serial: false,
                frozen: true,
                leaves: Some((1, When::Always)),
                ..callback("suspend", "suspend_caller", ANY)
            },
            Callback {
                serial: false,
                frozen: true,
                leaves: Some((0, When::Always)),
                ..callback("resume", "resume_caller", 0b10)
            },
            Callback { serial: false, ..callback("reset", "resume_caller", ANY) },
        ],
        ..Chart::default()
    };
    let hand = |hand, from: &str| Callback {
        serial: false,
        hand: Some(hand),
        ..callback(from.trim_end_matches("_caller"), from, ANY)
    };
    let hands = |hand, function: &str| Call { hand: Some(hand), ..call(function, ANY, None) };
    let request = Chart {
        name: "request".to_owned(),
        keys: vec!["request".to_owned()],
        states: vec![state("new", None)],
        callbacks: vec![
            hand(By::Takes, "queue_caller"),
            hand(By::Gives, "init_caller"),
            hand(By::Completes, "poll_caller"),
        ],
        calls: vec![
            hands(By::Lends, "request_start"),
            hands(By::Gives, "request_end"),
            Call { keys: vec![None], ..hands(By::Gives, "request_end_all") },
        ],
        ..Chart::default()
    };
    let lamp = Chart {
        name: "lamp".to_owned(),
        made: true,
        keys: vec!["lamp".to_owned()],
        states: vec![
            state("off", None),
            State { busy: Some("the lamp is on".to_owned()), ..state("on", None) },
        ],
        calls: vec![call("lamp_setup", ANY, Some(0)), call("lamp_on", ANY, Some(1))],
        ..Chart::default()
    };
    vec![timer, irq, work, line, tasklet, kthread, device, lamp, power, request, item]
}

struct Hand;

impl World for Hand {
    fn function_at(&self, at: u64) -> Option<(String, u64)> {
        let offset = at.checked_sub(TEXT)?;
        let name = FUNCTIONS.get((offset / 0x100) as usize)?;
        Some(((*name).to_owned(), offset % 0x100))
    }
    fn hook(&self, number: u64) -> Option<Arc<Summary>> {
        let name = FUNCTIONS[..HOOKS].get(number as usize)?;
        Some(self.call(name))
    }
    fn hook_args(&self, _: u64) -> usize {
        6
    }
    fn hook_address(&self, number: u64) -> u64 {
        TEXT + number * 0x100
    }
    fn call(&self, name: &str) -> Arc<Summary> {
        Arc::new(Summary { name: name.to_owned(), effects: effects(name) })
    }
    fn module(&self, name: &str, _: &[Region], _: &[u64]) -> Option<ModuleMap> {
        let range = |start: u64, end: u64, name: &str| Range { start, end, name: name.into() };
        if name == "core" {
            let functions = (CORE..).step_by(0x100).zip(CORE_FUNCTIONS);
            let functions = functions.map(|(at, name)| range(at, at + 0x100, name)).collect();
            return Some(ModuleMap { functions, ..ModuleMap::default() });
        }
        Some(ModuleMap {
            functions: vec![range(F, F + 0x100, "f"), range(G, G + 0x100, "g")],
            ..ModuleMap::default()
        })
    }
    fn charts(&self) -> Arc<[Chart]> {
        charts().into()
    }
    fn preempt_count(&self) -> Option<(u64, bool)> {
        Some((PREEMPT, false))
    }
}

/// What the checker saw of a touch.
#[derive(Clone, Debug, Default)]
pub struct Touch {
    pub now: Now,
    /// Earlier touches that come before it, by hard and by full order, and those with a common lock.
    pub after: Vec<u64>,
    pub after_fully: Vec<u64>,
    pub common: Vec<u64>,
    pub strand: String,
    pub states: Vec<String>,
    pub per_cpu: bool,
}

/// What the checker saw in the run.
#[derive(Debug, Default)]
pub struct Seen {
    pub touches: BTreeMap<u64, Touch>,
    pub told: Vec<String>,
    pub steps: Vec<Step>,
    pub entries: Vec<Entry>,
}

/// Records touches: stores to `HEAP + 64 n`.
#[derive(Debug, Default)]
pub struct Probe(pub Rc<RefCell<Seen>>);

impl Checker for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }
    fn needs_sync(&self) -> bool {
        true
    }
    fn store(&mut self, cx: &mut Cx<'_>, _: &InsnCtx, access: Access, _: Value) {
        let (Some(context), Some(at)) = (cx.context, access.addr.checked_sub(HEAP)) else { return };
        if at >= 64 * 100 {
            return;
        }
        let (now, order) = (context.order.now, &cx.state.order);
        let mut seen = self.0.borrow_mut();
        let mut touch = Touch { now, per_cpu: order.per_cpu.contains(access.addr), ..Touch::default() };
        for (&n, earlier) in &seen.touches {
            let before = (earlier.now.strand, earlier.now.clock);
            if order.ordered(before, now.strand) {
                touch.after.push(n);
            }
            if order.ordered_fully(before, now.strand) {
                touch.after_fully.push(n);
            }
            if order.common(earlier.now.locks, now.locks).is_some() {
                touch.common.push(n);
            }
        }
        touch.strand = order.describe(now.strand);
        touch.states = context.order.entries.last().map(|a| order.states_of(a)).unwrap_or_default();
        seen.touches.insert(at / 64, touch);
    }
    fn entered(&mut self, cx: &mut Cx<'_>, entry: &Entry) {
        let mut seen = self.0.borrow_mut();
        let depth = cx.context.map_or(0, |c| c.order.entries.len());
        seen.told.push(format!("enter {depth}"));
        seen.entries.push(entry.clone());
    }
    fn left(&mut self, cx: &mut Cx<'_>, _: &Entry) {
        let depth = cx.context.map_or(0, |c| c.order.entries.len());
        self.0.borrow_mut().told.push(format!("leave {depth}"));
    }
    fn locked(&mut self, cx: &mut Cx<'_>, lock: &Acquired) {
        let what = cx.state.order.lock(lock.lock).map(|l| (l.kind, l.address, l.name));
        let who = if lock.by_kernel { " by kernel" } else { "" };
        self.0.borrow_mut().told.push(format!("lock {} {what:?}{who}", lock.lock.0));
    }
    fn unlocked(&mut self, _: &mut Cx<'_>, lock: LockId, held: Option<&Acquired>, _: bool) {
        let held = if held.is_some() { "" } else { " not held" };
        self.0.borrow_mut().told.push(format!("unlock {}{held}", lock.0));
    }
    fn moved(&mut self, _: &mut Cx<'_>, step: &Step) {
        self.0.borrow_mut().steps.push(step.clone());
    }
}

/// The context that runs.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    pub cpu: u32,
    pub task: u64,
    pub pid: u32,
    pub preempt: u64,
    pub irqs: bool,
    pub rsp: u64,
}

/// Task `n` on vCPU `n % 2`.
pub fn task(n: u64) -> Who {
    Who {
        cpu: (n % 2) as u32,
        task: 0xffff_8880_0100_0000 + n * 0x1000,
        pid: 40 + n as u32,
        preempt: 0,
        irqs: true,
        rsp: 0xffff_c900_0100_3f00 + n * 0x1_0000,
    }
}

/// A softirq on the time of task `n`.
pub fn softirq(n: u64) -> Who {
    Who { preempt: 0x100, rsp: 0xffff_c900_0000_3f00 + n % 2 * 0x1_0000, ..task(n) }
}

/// An interrupt on the time of task `n`.
pub fn hardirq(n: u64) -> Who {
    Who { preempt: 0x1_0000, irqs: false, rsp: 0xffff_c900_0020_3f00 + n % 2 * 0x1_0000, ..task(n) }
}

pub struct Guest {
    machine: Replay,
    pub seen: Rc<RefCell<Seen>>,
    blocks: u64,
    pub place: u64,
}

impl Guest {
    pub fn new() -> Guest {
        Guest::with(Parts::default())
    }

    pub fn with(parts: Parts) -> Guest {
        let probe = Probe::default();
        let seen = Rc::clone(&probe.0);
        let mut machine = Replay::new(Box::new(Hand), vec![Box::new(probe)]);
        machine.set_parts(parts);
        Guest::of(machine, seen)
    }

    /// A guest that one of the crate's checkers watches.
    pub fn checked(tool: &str) -> Guest {
        let checker = crate::checkers::by_name(tool).expect("the tool exists");
        Guest::of(Replay::new(Box::new(Hand), vec![checker]), Rc::default())
    }

    fn of(machine: Replay, seen: Rc<RefCell<Seen>>) -> Guest {
        let mut guest = Guest { machine, seen, blocks: 0, place: F };
        guest.words(4, &[Head::encode(Kind::Global, Global::Slide as u8, 0), SLIDE]);
        let mut load = vec![Head::encode(Kind::ModuleLoad, 1, 0x1234_5678), 0];
        load.extend([u64::from_le_bytes(*b"drv\0\0\0\0\0"), 0, 0, 0, 0, 0, 0, 0]);
        load.extend([MODULE, 0x3000, RegionFlags::TEXT]);
        guest.words(4, &load);
        guest
    }

    /// The module that is not watched is loaded.
    pub fn load_other(&mut self) {
        let mut load = vec![Head::encode(Kind::OtherModule, 1, CORE + 0x800), 0];
        load.extend([u64::from_le_bytes(*b"core\0\0\0\0"), 0, 0, 0, 0, 0, 0, 0]);
        load.extend([CORE, 0x1000, RegionFlags::TEXT]);
        self.words(4, &load);
    }

    pub fn words(&mut self, cpu: u32, words: &[u64]) {
        self.machine.segment(cpu, words);
    }

    fn flags(who: &Who) -> u8 {
        if who.irqs { EnterFlags::INTERRUPTS_ON } else { 0 }
    }

    /// The kernel function `caller` calls the driver's function at `self.place`.
    pub fn enter(&mut self, who: &Who, caller: &str, args: [u64; 6]) {
        let head = Head::encode(Kind::Enter, Guest::flags(who) | EnterFlags::ARGS, who.preempt);
        let mut words = vec![head, who.task, who.rsp, 0, u64::from(who.pid)];
        words.extend(args);
        words.push(function(caller) + 9);
        self.words(who.cpu, &words);
        self.block(who, &[0x90], &[]);
    }

    /// A block of code runs in a context.
    pub fn block(&mut self, who: &Who, bytes: &[u8], accesses: &[Access]) {
        self.block_and(who, bytes, accesses, &[]);
    }

    fn block_and(&mut self, who: &Who, bytes: &[u8], accesses: &[Access], more: &[u64]) {
        self.blocks += 1;
        let mut def = vec![Head::encode(Kind::BlockDef, 0, self.blocks), self.place, bytes.len() as u64];
        def.extend(bytes.chunks(8).map(|c| {
            let mut word = [0; 8];
            word[..c.len()].copy_from_slice(c);
            u64::from_le_bytes(word)
        }));
        self.words(4, &def);
        let mut words = vec![Head::encode(Kind::Block, 0, self.blocks)];
        words.extend(accesses.iter().map(|a| a.encode()));
        words.extend(more);
        self.words(who.cpu, &words);
    }

    /// Touches place `n`: mov [rdi], al.
    pub fn touch(&mut self, who: &Who, n: u64) {
        self.block(who, &[0x88, 0x07], &[store(0, HEAP + n * 64, 1)]);
    }

    fn leave(&mut self, who: &Who, jump: bool, name: &str, args: [u64; 6]) {
        self.blocks += 1;
        let bytes = if jump { 0xe9 } else { 0xe8 };
        self.words(4, &[Head::encode(Kind::BlockDef, 0, self.blocks), self.place, 5, bytes]);
        let mut words = vec![Head::encode(Kind::Block, 0, self.blocks)];
        words.extend([Head::encode(Kind::Call, u8::from(jump), function(name)), who.rsp]);
        words.extend(args);
        if !jump {
            words.push(store(0, who.rsp - 8, 8).encode());
        }
        self.words(who.cpu, &words);
    }

    /// The driver calls a kernel function.
    pub fn call(&mut self, who: &Who, name: &str, args: &[u64]) {
        self.leave(who, false, name, six(args));
    }

    /// The driver's function ends with a jump to a kernel function.
    pub fn jump(&mut self, who: &Who, name: &str, args: &[u64]) {
        self.leave(who, true, name, six(args));
    }

    /// The kernel function returns to the driver.
    pub fn back(&mut self, who: &Who, result: u64) {
        let head = Head::encode(Kind::Enter, Guest::flags(who), who.preempt);
        self.words(who.cpu, &[head, who.task, who.rsp, result, u64::from(who.pid)]);
        self.block(who, &[0x90], &[]);
    }

    /// The driver calls a kernel function, which returns.
    pub fn called(&mut self, who: &Who, name: &str, args: &[u64], result: u64) {
        self.call(who, name, args);
        self.back(who, result);
    }

    /// The driver's function returns to the kernel.
    pub fn ret(&mut self, who: &Who, result: u64) {
        let told = [Head::encode(Kind::Return, 0, 0), result];
        self.block_and(who, &[0xc3], &[load(0, who.rsp, 8)], &told);
    }

    /// A hooked function begins.
    pub fn hook(&mut self, who: &Who, name: &str, rsp: u64, args: &[u64]) {
        let head = Head::encode(Kind::HookCall, 6, number(name));
        // The driver's call pushed the address behind the call.
        let ret = if rsp == who.rsp - 8 { self.place + 5 } else { function("vfs_read") + 50 };
        let mut words = vec![head, who.task, rsp, ret];
        words.extend(six(args));
        self.words(who.cpu, &words);
    }

    pub fn hook_return(&mut self, who: &Who, name: &str, rsp: u64, result: u64) {
        self.words(who.cpu, &[Head::encode(Kind::HookRet, 0, number(name)), rsp, result]);
    }

    /// The kernel calls a hooked function in a task, and it returns.
    pub fn hooked(&mut self, who: &Who, name: &str, args: &[u64], result: u64) {
        let rsp = who.rsp + 0x80;
        self.hook(who, name, rsp, args);
        self.hook_return(who, name, rsp, result);
    }

    /// The kernel calls the driver, which touches `n` and returns.
    pub fn run(&mut self, who: &Who, caller: &str, args: [u64; 6], n: u64) {
        self.enter(who, caller, args);
        self.touch(who, n);
        self.ret(who, 0);
    }

    /// An interrupt hits the driver.
    pub fn interrupt(&mut self, who: &Who) {
        self.words(who.cpu, &[Head::encode(Kind::Discontinuity, 1, self.place), function("up"), 0]);
    }

    pub fn touched(&self, n: u64) -> Touch {
        self.seen.borrow().touches.get(&n).cloned().unwrap_or_else(|| panic!("{n} was not touched"))
    }

    pub fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.borrow_mut().told)
    }

    /// Steps as `chart from→to`, with `!` where not allowed.
    pub fn steps(&self) -> Vec<String> {
        let charts = charts();
        let name = |step: &Step, state: usize| charts[step.chart].states[state].name.clone();
        let steps = std::mem::take(&mut self.seen.borrow_mut().steps);
        let show = |s: &Step| {
            let not = if s.allowed { "" } else { "!" };
            format!("{}{} {}→{}", not, charts[s.chart].name, name(s, s.from), name(s, s.to))
        };
        steps.iter().map(show).collect()
    }

    /// Ends the run; returns each finding as `kind: message`.
    pub fn found(self) -> Vec<String> {
        let findings = self.machine.finish().findings;
        findings.iter().map(|f| format!("{}: {}", f.kind, f.message)).collect()
    }

    pub fn machine(&mut self) -> &mut Replay {
        &mut self.machine
    }
}

pub fn six(args: &[u64]) -> [u64; 6] {
    let mut six = [0; 6];
    six[..args.len()].copy_from_slice(args);
    six
}

pub fn load(insn: u16, addr: u64, size: u8) -> Access {
    Access { addr, size, store: false, io: false, insn }
}

pub fn store(insn: u16, addr: u64, size: u8) -> Access {
    Access { addr, size, store: true, io: false, insn }
}

/// Arguments of a callback that nothing depends on.
pub const NONE: [u64; 6] = [0; 6];
