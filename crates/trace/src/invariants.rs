//! Rules that every trace must satisfy, whichever program recorded it. The checker takes segments in
//! merged order and counts statistics.
//!
//! Tests run it over every trace, and so does `guardrail view --check`. Its [`Stats`] become part of the
//! run's summary.

mod modules;

#[cfg(test)]
mod tests;

use crate::Segment;
use crate::event::{Access, EnterFlags, Event, Global, Head, Kind, MAX_STACKS};
use crate::meet::Meet;
use modules::Modules;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Violations kept as text; further ones are only counted.
const KEPT: usize = 100;
/// Block definitions that the checker remembers; it ignores further ones.
const MAX_BLOCKS: usize = 1 << 22;
/// Outstanding calls of hooked functions that the checker remembers. At the limit it forgets all of
/// them.
const MAX_CALLS: usize = 1 << 18;
/// Most rings that a trace may have.
const MAX_RINGS: u32 = 257;

/// Counts of a trace's content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Number of segments.
    pub segments: u64,
    /// Event words, without segment headers.
    pub words: u64,
    /// Number of events: accesses and records.
    pub events: u64,
    /// Number of executed blocks.
    pub blocks: u64,
    /// Number of distinct blocks.
    pub block_definitions: u64,
    /// Total bytes of the distinct blocks.
    pub block_bytes: u64,
    /// Number of memory accesses, including device memory.
    pub accesses: u64,
    /// Number of loads among the accesses.
    pub loads: u64,
    /// Number of stores among the accesses.
    pub stores: u64,
    /// Number of accesses to device memory and ports.
    pub device_accesses: u64,
    /// Returns of hooked functions without an outstanding call.
    pub unmatched_returns: u64,
    /// Records of each kind, by name.
    pub kinds: BTreeMap<String, u64>,
    /// Number of violations, whether kept as text or not.
    pub violations: u64,
}

/// A rule that the trace breaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Ticket of the segment with the violation.
    pub ticket: u64,
    /// Ring of that segment.
    pub ring: u32,
    /// One sentence that describes the violation.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "segment {} of ring {}: {}", self.ticket, self.ring, self.what)
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    address: u64,
    bytes: u32,
    /// State of the modules when the block was last found inside a loaded module.
    checked: u64,
}

#[derive(Clone, Debug, Default)]
struct Ring {
    entered: bool,
    /// Number of its last stack.
    stacks: u64,
    /// The running block and its length. Accesses may still belong to it.
    current: Option<u32>,
    ended: bool,
}

/// Checks a trace and counts its content. Memory use is bounded for any input.
#[derive(Debug, Default)]
pub struct Checker {
    stats: Stats,
    kinds: [u64; 32],
    violations: Vec<Violation>,
    next_ticket: Option<u64>,
    blocks: FxHashMap<u64, Block>,
    rings: FxHashMap<u32, Ring>,
    /// Outstanding calls of hooked functions, by rsp and hook number, with their count.
    calls: FxHashMap<(u64, u64), u32>,
    modules: Modules,
    vcpus: Option<u32>,
    /// Earlier segments may be missing.
    part: bool,
}

impl Checker {
    /// Makes a checker for a whole trace.
    pub fn new() -> Checker {
        Checker { next_ticket: Some(0), ..Checker::default() }
    }

    /// Makes a checker for a part of a trace, whose first ticket may be any number.
    pub fn for_part() -> Checker {
        Checker { part: true, ..Checker::default() }
    }

    /// Adds a check: no ring lies beyond the control ring of a machine with this many vCPUs.
    pub fn with_vcpus(mut self, vcpus: u32) -> Checker {
        self.vcpus = Some(vcpus);
        self
    }

    /// The violations found so far, at most the first hundred.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The counts so far.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        for (bits, &count) in self.kinds.iter().enumerate() {
            if let Some(kind) = Kind::from_bits(bits as u8).filter(|_| count > 0) {
                stats.kinds.insert(format!("{kind:?}"), count);
            }
        }
        stats.blocks = self.kinds[Kind::Block as usize];
        stats.device_accesses += self.kinds[Kind::Port as usize];
        stats
    }

    /// Checks and counts the next segment.
    pub fn segment(&mut self, segment: &Segment<'_>) {
        self.stats.segments += 1;
        self.stats.words += segment.words.len() as u64;
        if self.next_ticket.is_some_and(|expected| expected != segment.ticket) {
            let expected = self.next_ticket.unwrap_or(0);
            self.violation(segment, || format!("ticket {expected} was expected"));
        }
        self.next_ticket = segment.ticket.checked_add(1);
        if segment.ring >= self.vcpus.map_or(MAX_RINGS, |vcpus| vcpus.saturating_add(1)) {
            self.violation(segment, || "no such ring".to_owned());
            return;
        }
        let mut ring = self.rings.remove(&segment.ring).unwrap_or_default();
        if ring.ended {
            self.violation(segment, || "it comes after the end of its ring".to_owned());
        }
        if !segment.continuation {
            ring.current = None;
        }
        for event in segment.events() {
            match event {
                Ok(Event::Access(access)) => self.access(segment, &ring, access),
                Ok(Event::Record(head, operands)) => self.record(segment, &mut ring, head, operands),
                Err(error) => self.violation(segment, || error.to_string()),
            }
        }
        self.rings.insert(segment.ring, ring);
    }

    fn violation(&mut self, segment: &Segment<'_>, what: impl FnOnce() -> String) {
        self.stats.violations += 1;
        if self.violations.len() < KEPT {
            self.violations.push(Violation { ticket: segment.ticket, ring: segment.ring, what: what() });
        }
    }

    fn access(&mut self, segment: &Segment<'_>, ring: &Ring, access: Access) {
        self.stats.events += 1;
        self.stats.accesses += 1;
        if access.store {
            self.stats.stores += 1;
        } else {
            self.stats.loads += 1;
        }
        self.stats.device_accesses += u64::from(access.io);
        if access.size > 64 {
            self.violation(segment, || format!("an access of {} bytes", access.size));
        }
        self.instruction(segment, ring, u64::from(access.insn), "an access");
    }

    /// Checks that an instruction index belongs to the running block. Every instruction has at least one
    /// byte.
    fn instruction(&mut self, segment: &Segment<'_>, ring: &Ring, insn: u64, who: &str) {
        match ring.current {
            None => self.violation(segment, || format!("{who} outside any block")),
            Some(bytes) if insn >= u64::from(bytes) => {
                self.violation(segment, || {
                    format!("{who} by instruction {insn} of a block of {bytes} bytes")
                });
            }
            Some(_) => {}
        }
    }

    fn record(&mut self, segment: &Segment<'_>, ring: &mut Ring, head: Head, operands: &[u64]) {
        self.stats.events += 1;
        self.kinds[head.kind as usize & 31] += 1;
        let operand = |i: usize| operands.get(i).copied().unwrap_or(0);
        match head.kind {
            Kind::Block => self.block(segment, ring, head.large),
            Kind::BlockDef => self.define(segment, head.large, operand(0), operand(1)),
            Kind::Enter => {
                ring.entered = true;
                let number = operands.last().filter(|_| head.small & EnterFlags::STACK != 0);
                if let Some(number) = number.filter(|&&number| number > ring.stacks && !self.part) {
                    self.violation(segment, || format!("an entry with the stack {number}, never defined"));
                }
            }
            Kind::Stack => {
                let expected = ring.stacks + 1;
                if (head.large != expected && !self.part) || head.large > MAX_STACKS {
                    self.violation(segment, || format!("stack {} where {expected} was expected", head.large));
                }
                ring.stacks = head.large;
            }
            Kind::Rep => self.instruction(segment, ring, head.large, "a string operation"),
            Kind::Cut => self.instruction(segment, ring, head.large.saturating_sub(1), "a cut"),
            Kind::Return => {
                if ring.current.is_none() {
                    self.violation(segment, || "a return outside any block".to_owned());
                }
            }
            Kind::List => {}
            Kind::Meet => {
                if Meet::decode(head, operands).is_none() {
                    self.violation(segment, || format!("a meeting with the unknown outcome {}", head.small));
                }
            }
            Kind::Port => {
                if !matches!(head.small & 0x7f, 1 | 2 | 4) {
                    self.violation(segment, || format!("a port access of {} bytes", head.small & 0x7f));
                }
                self.instruction(segment, ring, head.large >> 16, "a port access");
            }
            Kind::Call => {
                if head.small > 1 {
                    self.violation(segment, || format!("a call of kind {}", head.small));
                }
                if ring.current.is_none() {
                    self.violation(segment, || "a call outside any block".to_owned());
                }
            }
            Kind::Discontinuity => {
                if !matches!(head.small, 1 | 2) {
                    self.violation(segment, || format!("a discontinuity of kind {}", head.small));
                }
            }
            Kind::HookCall => {
                if self.calls.len() >= MAX_CALLS {
                    self.calls.clear();
                }
                let count = self.calls.entry((operand(1), head.large)).or_default();
                *count = count.saturating_add(1);
            }
            Kind::HookRet => self.hook_return(operand(0), head.large),
            Kind::ModuleLoad => {
                if let Err(what) = self.modules.load(head, operands) {
                    self.violation(segment, || what.to_owned());
                }
            }
            Kind::ModuleFree => {
                if let Err(what) = self.modules.free(operand(0), operand(1)) {
                    self.violation(segment, || what.to_owned());
                }
            }
            Kind::ModuleUnload => {
                if !self.modules.unload(head.address()) {
                    self.violation(segment, || {
                        format!("module {:#x} is unloaded but was not loaded", head.address())
                    });
                }
            }
            Kind::OtherModule => {
                if let Err(what) = self.modules.load_other(head, operands) {
                    self.violation(segment, || what.to_owned());
                }
            }
            Kind::OtherUnload => {
                if !self.modules.unload_other(head.address()) {
                    self.violation(segment, || {
                        format!("the other module {:#x} is unloaded but was not loaded", head.address())
                    });
                }
            }
            Kind::Global => {
                if Global::from_small(head.small).is_none() {
                    self.violation(segment, || format!("a global value of unknown kind {}", head.small));
                }
            }
            Kind::Thread => {}
            Kind::End => ring.ended = true,
        }
    }

    fn block(&mut self, segment: &Segment<'_>, ring: &mut Ring, number: u64) {
        if !ring.entered {
            self.violation(segment, || format!("block {number} runs before its vCPU entered the driver"));
            // One violation for this ring is enough.
            ring.entered = true;
        }
        let now = self.modules.state();
        let Some(block) = self.blocks.get_mut(&number) else {
            // No check applies to the accesses that follow.
            ring.current = Some(u32::from(Access::MAX_INSN) + 1);
            if self.blocks.len() < MAX_BLOCKS {
                self.violation(segment, || format!("block {number} runs and was never defined"));
            }
            return;
        };
        ring.current = Some(block.bytes);
        if block.checked != now {
            block.checked = now;
            let Block { address, bytes, .. } = *block;
            if !self.modules.holds_code(address, bytes) {
                self.violation(segment, || {
                    format!("block {number} at {address:#x} runs outside the code of every loaded module")
                });
            }
        }
    }

    fn define(&mut self, segment: &Segment<'_>, number: u64, address: u64, bytes: u64) {
        self.stats.block_definitions += 1;
        self.stats.block_bytes += bytes;
        if self.blocks.len() >= MAX_BLOCKS {
            if self.blocks.len() == MAX_BLOCKS && !self.blocks.contains_key(&number) {
                self.violation(segment, || "more blocks than the checker keeps".to_owned());
            }
            return;
        }
        let block = Block { address, bytes: bytes as u32, checked: u64::MAX };
        if self.blocks.insert(number, block).is_some() {
            self.violation(segment, || format!("block {number} is defined twice"));
        }
    }

    fn hook_return(&mut self, rsp: u64, hook: u64) {
        match self.calls.get_mut(&(rsp, hook)) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => {
                self.calls.remove(&(rsp, hook));
            }
            None => self.stats.unmatched_returns += 1,
        }
    }
}
