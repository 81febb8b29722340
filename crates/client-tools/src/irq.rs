//! `irq`: which interrupts and exceptions arrive, how long their handlers take, and how long interrupts
//! are off.
//!
//! A handler's time runs from its entry to its `iretq`. It excludes interrupts within it, softirqs, and
//! other threads that run meanwhile.
//!
//! Interrupts are off from `cli`, or from the entry of an interrupt, an exception or a system call. They
//! are on again from `sti`, or from a return to code with interrupts on.

mod off;
mod vectors;

use crate::flows::{Clock, Flows, IRETQ, lock};
use guardrail_client_api::iced_x86::Code;
use guardrail_client_api::{
    Block, Cell, Client, Discontinuity, HookId, Results, Setup, Table, Unwinder, Vcpu, register,
};
use off::{Off, Stretch};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use vectors::Vectors;

/// Most frames of a stack.
const FRAMES: usize = 32;
/// The interrupt flag in RFLAGS.
const IF: u64 = 1 << 9;
/// Position, in a callback's data, of the bits that say which instruction it is. An `iretq` has ones
/// there.
const SHIFT: u32 = 56;
const CLI: u64 = 1;
const STI: u64 = 2;
const POPF: u64 = 3;
const SYSCALL: u64 = 4;
const SYSRET: u64 = 5;

/// The `irq` client.
pub struct Irq {
    flows: Flows<u64>,
    off: guardrail_client_api::PerVcpu<Mutex<Off>>,
    handlers: Mutex<HashMap<(u64, u64), Handler>>,
    unwinder: Arc<Unwinder>,
    vectors: Vectors,
    /// Link-time addresses of the system call entries.
    syscalls: Vec<u64>,
    /// Hooks of functions that get the `irq_desc` of an interrupt.
    events: Vec<HookId>,
    /// Offsets of `irq_desc::action` and `irqaction::handler`.
    action: Option<(u64, u64)>,
}

/// Statistics of one handler.
#[derive(Clone, Copy, Debug, Default)]
struct Handler {
    ended: u64,
    sum: Clock,
    longest: Clock,
}

impl Client for Irq {
    const NAME: &'static str = "irq";

    fn new(setup: &mut Setup) -> Result<Self, String> {
        setup.only(&[])?;
        let image = setup.kernel()?;
        let mut events = Vec::new();
        for name in ["handle_irq_event", "handle_irq_event_percpu"] {
            events.extend(setup.hook(name, false)?);
        }
        let names = ["entry_SYSCALL_64", "entry_SYSCALL_compat", "entry_SYSENTER_compat"];
        let member = |structure, name| image.btf().member_offset(structure, name);
        let action = member("irq_desc", "action").zip(member("irqaction", "handler"));
        Ok(Irq {
            flows: Flows::new(setup, true, true)?,
            off: setup.per_vcpu(Mutex::default),
            handlers: Mutex::default(),
            unwinder: setup.unwinder()?,
            vectors: Vectors::of(Arc::clone(&image)),
            syscalls: names.iter().filter_map(|name| image.address_of(name)).collect(),
            events,
            action,
        })
    }

    fn block(&'static self, block: &mut Block<Self>) {
        self.flows.count(block);
        let at = |kind: u64, address: u64| kind << SHIFT | address & !(!0 << SHIFT);
        let asked: Vec<(usize, u64)> = block
            .insns()
            .iter()
            .enumerate()
            .filter_map(|(index, insn)| {
                let kind = match insn.code() {
                    Code::Cli => CLI,
                    Code::Sti => STI,
                    Code::Popfq => POPF,
                    Code::Sysretq => SYSRET,
                    _ => return None,
                };
                Some((index, at(kind, insn.ip())))
            })
            .collect();
        asked.into_iter().for_each(|(index, data)| block.call_at(index, data));
        let link = block.address().wrapping_sub(block.slide().unwrap_or(0));
        if self.syscalls.contains(&link) {
            block.call_at(0, at(SYSCALL, block.address()));
        }
        self.flows.watch(block);
    }

    fn executed(&'static self, vcpu: &mut Vcpu, data: u64) {
        let pc = data | !0 << SHIFT;
        match data >> SHIFT {
            CLI | SYSCALL => self.begins(vcpu, pc),
            STI | SYSRET => self.ends(vcpu, pc),
            POPF => {
                let rsp = vcpu.stack();
                match vcpu.word(rsp, 8) {
                    Some(flags) if flags & IF != 0 => self.ends(vcpu, pc),
                    Some(_) => self.begins(vcpu, pc),
                    None => {}
                }
            }
            _ => {
                debug_assert!(data & IRETQ != 0);
                let rsp = vcpu.stack();
                let flags = vcpu.word(rsp.wrapping_add(16), 8).unwrap_or(IF);
                if let Some((flow, ran)) = self.flows.ends(vcpu, data) {
                    self.handled(flow.entry, flow.data, ran);
                }
                match flags & IF {
                    0 => self.begins(vcpu, pc),
                    _ => self.ends(vcpu, pc),
                }
            }
        }
    }

    fn discontinuity(&'static self, vcpu: &mut Vcpu, kind: Discontinuity, _: u64, to: u64) {
        self.vectors.set_slide(vcpu.slide());
        if self.flows.begins(vcpu, kind, to, 0).is_some() {
            self.begins(vcpu, to);
        }
    }

    fn entered(&'static self, vcpu: &mut Vcpu, hook: HookId) {
        if !self.events.contains(&hook) {
            return self.flows.entered(vcpu, hook);
        }
        let [desc, ..] = vcpu.args();
        let handler = self.action.and_then(|(action, handler)| {
            let action = vcpu.word(desc.wrapping_add(action), 8).filter(|&action| action != 0)?;
            vcpu.word(action.wrapping_add(handler), 8)
        });
        self.flows.of(vcpu).top().data = handler.unwrap_or(0);
    }

    fn left(&'static self, vcpu: &mut Vcpu, hook: HookId, _: [u64; 6], _: u64) {
        if let Some((_, ran)) = self.flows.left(vcpu, hook) {
            self.handled(0, 0, ran);
        }
    }

    fn switched(&'static self, vcpu: &mut Vcpu, from: u64, to: u64) {
        self.flows.switched(vcpu, from, to);
    }

    fn attached(&'static self, _: &mut Vcpu, booted: bool) {
        if booted {
            self.flows.restart();
        }
    }

    fn detached(&'static self) {
        // The client does not see the end of the current stretches.
        self.off.all().for_each(|off| lock(off).forget());
    }

    fn results(&'static self, results: &mut Results) {
        let mut handlers: Vec<_> = lock(&self.handlers).iter().map(|(&key, &known)| (key, known)).collect();
        handlers.sort_unstable_by_key(|(key, known)| (std::cmp::Reverse(known.ended), *key));
        let rows = handlers.iter().map(|(key, known)| self.row(*key, known)).collect();
        let columns =
            ["vector", "entry", "handler", "ended", "instructions each", "longest", "ns each", "longest ns"];
        let columns = columns.map(str::to_owned).to_vec();
        let name = "interrupts and exceptions".to_owned();
        results.tables.push(Table { name, columns, rows, ..Table::default() });
        let mut all = Off::default();
        self.off.all().for_each(|off| all.merge(&lock(off)));
        results.tables.extend(all.tables());
        results.notes.push("lengths in ns are the host's, with what this client itself takes".into());
    }
}

impl Irq {
    fn begins(&self, vcpu: &Vcpu, pc: u64) {
        let now = self.flows.now(vcpu);
        lock(self.off.of(vcpu)).begins(now, pc);
    }

    fn ends(&self, vcpu: &mut Vcpu, pc: u64) {
        let now = self.flows.now(vcpu);
        let Some(stretch) = lock(self.off.of(vcpu)).ends(now, pc) else { return };
        let mut stack = Vec::new();
        match vcpu.register(register::RSP) >> 63 {
            0 => stack.push(pc),
            _ => self.unwinder.calls(vcpu, pc, FRAMES, &mut stack),
        }
        let level = self.flows.of(vcpu).top().level;
        lock(self.off.of(vcpu)).keep(Stretch { stack, level: level.name(), cpu: vcpu.index(), ..stretch });
    }

    fn handled(&self, entry: u64, handler: u64, ran: Clock) {
        let mut handlers = lock(&self.handlers);
        let known = handlers.entry((entry, handler)).or_default();
        known.ended += 1;
        known.sum.insns += ran.insns;
        known.sum.ns += ran.ns;
        known.longest.insns = known.longest.insns.max(ran.insns);
        known.longest.ns = known.longest.ns.max(ran.ns);
    }

    fn row(&self, (entry, handler): (u64, u64), known: &Handler) -> Vec<Cell> {
        let each = |sum: u64| Cell::Count(sum / known.ended.max(1));
        let text = |text: &str| Cell::Text(text.to_owned());
        let vector = self.vectors.of_entry(entry).map_or(text(""), |vector| Cell::Text(vector.to_string()));
        vec![
            if entry == 0 { text("") } else { vector },
            if entry == 0 { text("softirqs") } else { Cell::Function(entry) },
            if handler == 0 { text("") } else { Cell::Function(handler) },
            Cell::Count(known.ended),
            each(known.sum.insns),
            Cell::Count(known.longest.insns),
            each(known.sum.ns),
            Cell::Count(known.longest.ns),
        ]
    }
}
