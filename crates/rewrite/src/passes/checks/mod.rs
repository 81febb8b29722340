//! The pass that checks stores and calls by pointer. Code before each of them looks its address up in the
//! rights table (`runtime/include/guardrail_abi.h`).
//!
//! ```text
//!     lea   <operand>, %r            # a register whose value nobody needs
//!     ror   $3, %r                   # of 8 bytes; see below
//!     add   %gs:guardrail_table, %r
//!     cmpb  $<domain, write>, (%r)   # faults where the table is not populated: goes on at out
//!     jne   out
//! site: <store>
//!     ...
//! out: lea  <operand>, %r            # behind the function
//!     call  <thunk for %r and the size>
//!     jmp   site
//! ```
//!
//! A store at a multiple of its size lies in one slot. The check tests this in passing.
//! It rotates the address to the right by as many bits as have to be 0, and shifts it by the others of the
//! three.
//! A bit among them that is 1 then makes the address of the tag one that no address can be.
//! The check faults in that case, and the runtime looks at each byte.
//!
//! Where no register is free, one is saved.
//! Where flags are needed, they are kept in RAX (`lahf`, `seto`), which is far cheaper than `pushfq`.
//! Stores of one block relative to one register share a check (`merge`).
//! What is rare asks the runtime each time: string instructions that repeat, per-CPU variables, odd sizes.
//!
//! **Knows**: what an instruction writes or calls (`access`), which functions the checks cannot be proven for
//! (`assembly`), the tags of the rights table.
//!
//! **Must not know**: which rights a domain has, and why.
//!
//! **Invariants**: each store and each call by pointer has a check, or a `Reason` why it needs none, unless
//! the user trusts its function. A check that cannot decide asks the runtime.

pub(crate) mod access;
mod assembly;
mod build;
mod depth;
mod frames;
mod merge;
mod recursion;
#[cfg(test)]
mod tests;
mod variables;

use access::{Access, Reason, access};
use build::Builder;
use merge::{Groups, Look, Store};

use crate::border::grade::{Grade, Share};
use crate::border::guard;
use crate::border::runtime::Exports;
use crate::border::{Done, Interposition, texts};
use crate::engine::code::{At, Code};
use crate::engine::emit::Operand;
use crate::engine::object::Object;
use crate::engine::pass::{FunctionView, Pass, Text};
use crate::engine::patch::Patch;
use crate::error::Doubt;
use crate::error::{Result, RewriteError};
use crate::passes::asks::{Asks, Built};
use crate::passes::thunks::{self, Ask, Thunks};
use guardrail_abi::symbol;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic};
use std::collections::BTreeSet;

/// The field of `.modinfo` with the functions that were left as they are.
pub const TRUSTED: &str = "guardrail_trusted";
/// Bytes of the largest store that a look at the table can decide.
const LARGEST: u32 = 64;

/// How many stores and calls by pointer of a module the pass checks, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stores {
    /// Checked stores, those of the fields below included.
    pub checked: usize,
    /// Checked stores that share the check of another.
    pub merged: usize,
    /// Checked stores to a bit whose number is in a register.
    pub bits: usize,
    /// Checked stores that may go to user memory.
    pub user: usize,
    /// Checked stores by string instructions that repeat.
    pub strings: usize,
    /// Checked stores to per-CPU variables that are not the module's own.
    pub per_cpu: usize,
    /// Checked stores of sizes for which the runtime is asked each time.
    pub odd: usize,
    /// Stores by an index to an array of the module, whose bounds are checked as well.
    pub elements: usize,
    /// Checked calls and jumps to an address.
    pub calls: usize,
    /// Checks, of stores and calls, for which a register is saved.
    pub saved: usize,
    /// Checks for which flags are kept.
    pub flags: usize,
    /// Stores into the function's own stack frame at a fixed place, which need no check.
    pub frame: usize,
    /// Stores into the module's own per-CPU variables, which need no check either.
    pub own: usize,
    /// Stores to the kernel's per-CPU variables, by name, which inlined code of the kernel writes.
    pub kernel_per_cpu: usize,
    /// Stores of the value that was there before, as barriers do.
    pub same: usize,
    /// Stores in code that the kernel replaces, which is not checked.
    pub replaced: usize,
    /// Stores in functions that are trusted, which are not checked either.
    pub trusted: usize,
    /// Places where a loop begins anew and counts.
    pub loops: usize,
    /// Functions that may come to call themselves, and look at the stack.
    pub recursive: usize,
    /// Places where a function frees a stack frame that holds something whose address was taken.
    pub frames: usize,
    /// Writes to ports, of which transactions have to know.
    pub ports: usize,
}

impl Stores {
    fn free(&mut self, reason: Reason) {
        *match reason {
            Reason::Frame => &mut self.frame,
            Reason::OwnPerCpu => &mut self.own,
            Reason::KernelPerCpu => &mut self.kernel_per_cpu,
            Reason::Same => &mut self.same,
            Reason::Replaced => &mut self.replaced,
        } += 1;
    }

    /// The stores that are under a rule: all but those in code that the kernel replaces, and in functions that
    /// are trusted.
    fn share(&self) -> Share {
        let free = self.frame + self.own + self.kernel_per_cpu + self.same;
        let part = self.checked + free;
        Share { part: part as u32, of: (part + self.replaced + self.trusted) as u32 }
    }

    fn built(&mut self, built: Built) -> Patch {
        self.saved += usize::from(built.saved);
        self.flags += usize::from(built.flags);
        built.patch
    }
}

/// The pass, with what it counts for one module.
#[derive(Debug)]
pub struct Checks {
    /// The protection domain that the module belongs to, from 1 to 14.
    domain: u8,
    /// The symbol of the variable that holds the table's address.
    table: usize,
    /// The symbol of the variable that loops count down.
    loops: usize,
    /// The symbol of the number of objects on stacks that the kernel holds.
    frames: usize,
    /// The symbol of the number of transactions on the CPU.
    transacting: usize,
    thunks: Thunks,
    /// Functions that may come to call themselves, by their first instruction.
    recursive: BTreeSet<At>,
    /// The module's name, and the runtime; `None` if the module is not to be guarded.
    guarded: Option<(String, Exports)>,
    /// Functions that are left as they are, by name.
    trusted: BTreeSet<String>,
    /// Those of the trusted functions that the module has.
    pub left: BTreeSet<String>,
    /// The actions at the calls between the module and the kernel.
    interposition: Interposition,
    /// Counts of what the pass did.
    pub stores: Stores,
    /// What was found at the border of a guarded module.
    pub done: Done,
    /// How much of a guarded module is under a rule.
    pub grade: Grade,
    /// Percent of the imports that must be under a rule for policies that end calls.
    threshold: u32,
}

impl Checks {
    /// Makes the pass for a module of this protection domain, from 1 to 14.
    pub fn new(domain: u8) -> Checks {
        Checks {
            domain: domain.clamp(1, 14),
            table: 0,
            loops: 0,
            frames: 0,
            transacting: 0,
            thunks: Thunks::default(),
            recursive: BTreeSet::new(),
            guarded: None,
            trusted: BTreeSet::new(),
            left: BTreeSet::new(),
            interposition: Interposition::default(),
            stores: Stores::default(),
            done: Done::default(),
            grade: Grade::default(),
            threshold: 0,
        }
    }

    /// Has the runtime refuse the module under a policy that ends calls, unless so many percent of its imports
    /// are under a rule.
    pub fn wanting(self, threshold: u32) -> Checks {
        Checks { threshold, ..self }
    }

    /// Leaves functions of these names as they are: nothing in them is checked, and they need not be
    /// provable. Imports of these names count as if a rule covered them.
    pub fn trusting(self, names: impl IntoIterator<Item = String>) -> Checks {
        Checks { trusted: names.into_iter().collect(), ..self }
    }

    /// Has the module get its rights from the runtime under this name when it is loaded.
    pub fn guarded(self, name: &str, runtime: &Exports) -> Checks {
        Checks { guarded: Some((name.to_owned(), runtime.clone())), ..self }
    }

    /// Performs these actions where a guarded module and the kernel call each other.
    pub fn interposing(self, interposition: Interposition) -> Checks {
        Checks { interposition, ..self }
    }
}

impl Pass for Checks {
    fn name(&self) -> &'static str {
        "writes"
    }

    fn prepare(&mut self, object: &mut Object) -> Result<()> {
        let codes = Code::all(object)?;
        self.left = assembly::known(object, &codes, &self.trusted);
        let mut doubts = assembly::doubts(object, &codes);
        doubts.retain(|doubt| !self.left.contains(&doubt.function));
        if !doubts.is_empty() {
            return Err(RewriteError::Unproven { doubts });
        }
        self.table = object.import(symbol::TABLE);
        self.loops = object.import(symbol::LOOPS);
        self.frames = object.import(symbol::FRAMES);
        if self.interposition.transacts {
            self.transacting = object.import(symbol::TRANSACTING);
        }
        self.recursive = recursion::recursive(object, &codes);
        self.thunks = Thunks::new(object, self.domain);
        Ok(())
    }

    fn function(&mut self, view: &FunctionView<'_>) -> Result<Vec<(u32, Patch)>> {
        let mut patches = Vec::new();
        if self.left.contains(view.name()) {
            let mut info = InstructionInfoFactory::new();
            let writes = |number: u32, info: &mut InstructionInfoFactory| {
                let insn = view.insn(number);
                matches!(access(view, number, insn, info.info(&insn.insn)), Ok(access) if access.stores())
            };
            let stores = view.function.insns.clone().filter(|&number| writes(number, &mut info));
            self.stores.trusted += stores.count();
            return Ok(patches);
        }
        // The code that is put in changes registers that a call may change.
        if view.flow.keeping.contains(view.name()) {
            let why = "its callers use registers afterwards that a call may change";
            let doubt = Doubt { function: view.name().to_owned(), offset: 0, why };
            return Err(RewriteError::Unproven { doubts: vec![doubt] });
        }
        let mut info = InstructionInfoFactory::new();
        let mut groups = Groups::default();
        for number in heads(view) {
            self.stores.loops += 1;
            patches.push((number, self.builder(view, number).turn()?.patch));
        }
        if self.recursive.contains(&(view.code.section, view.function.insns.start))
            && let Some(number) = recursion::entered(view)
        {
            self.stores.recursive += 1;
            patches.push((number, self.builder(view, number).room()?.patch));
        }
        for (number, end) in frames::ends(view) {
            self.stores.frames += 1;
            let built = self.builder(view, number).leave_frame(end)?;
            patches.push((number, self.stores.built(built)));
        }
        for number in view.function.insns.clone() {
            let insn = view.insn(number);
            let info = info.info(&insn.insn);
            groups.reached(view.flow, view.code.section, number);
            if self.interposition.transacts && writes_port(&insn.insn) && !insn.fixed {
                self.stores.ports += 1;
                groups.end();
                let built = self.builder(view, number).port()?;
                patches.push((number, self.stores.built(built)));
            }
            let access = access(view, number, insn, info)?;
            if let Access::Store(operand, size) = access
                && size.is_power_of_two()
                && size <= LARGEST
            {
                self.stores.checked += 1;
                if let Some(element) = variables::element(view.object, &operand, size) {
                    self.stores.elements += 1;
                    groups.end();
                    let built = self.builder(view, number).inside(operand, size, &element)?;
                    patches.push((number, self.stores.built(built)));
                }
                // A transaction logs atomic additions by what they add, so each must follow its own question.
                let alone = self.interposition.transacts && insn.insn.has_lock_prefix();
                if alone {
                    groups.end();
                }
                groups.store(Store { number, operand, size });
                if alone {
                    groups.end();
                }
            } else if let Some(patch) = self.alone(view, number, access)? {
                patches.push((number, patch));
            }
            groups.passed(info);
        }
        for look in groups.looks() {
            patches.push(self.look(view, &look)?);
        }
        patches.sort_by_key(|(number, _)| *number);
        Ok(patches)
    }

    fn finish(&mut self, object: &mut Object) -> Result<()> {
        if !self.left.is_empty() {
            let names: Vec<&str> = self.left.iter().map(String::as_str).collect();
            object.note(TRUSTED, &names.join(","));
        }
        std::mem::take(&mut self.thunks).finish(object);
        match &self.guarded {
            Some((name, runtime)) => {
                if let Some(hooks) = &runtime.hooks {
                    hooks.complete(object)?;
                }
                let named = guard::Named {
                    name,
                    domain: self.domain,
                    trusted: &self.trusted,
                    stores: self.stores.share(),
                    threshold: self.threshold,
                };
                (self.done, self.grade) = guard::describe(object, &named, &self.interposition)?;
                guard::add_versions(object, runtime)
            }
            None => Ok(()),
        }
    }

    fn placed(&mut self, object: &mut Object, texts: &[Text]) {
        texts::describe(object, texts, thunks::SECTION);
    }
}

/// Instructions to which something behind them in the function jumps back.
/// Left out are those where flags are needed, which is rare, and those that the kernel patches.
fn heads(view: &FunctionView<'_>) -> BTreeSet<u32> {
    let range = view.function.insns.clone();
    let back = range.clone().filter_map(|number| {
        let target = view.insn(number).target?;
        (range.contains(&target) && target <= number).then_some(target)
    });
    let counts = |&number: &u32| !view.insn(number).fixed && !view.needed(number).has_flags();
    back.filter(counts).collect()
}

fn writes_port(insn: &Instruction) -> bool {
    use Mnemonic::{Out, Outsb, Outsd, Outsw};
    matches!(insn.mnemonic(), Out | Outsb | Outsd | Outsw)
}

impl Checks {
    fn builder(&mut self, view: &FunctionView<'_>, number: u32) -> Builder<'_> {
        let Checks { table, loops, frames, transacting, domain, .. } = *self;
        let asks = Asks { thunks: &mut self.thunks, needed: view.needed(number), site: number };
        Builder { table, loops, frames, transacting, domain, asks }
    }

    /// One look for several stores, before the first of them.
    fn look(&mut self, view: &FunctionView<'_>, look: &Look) -> Result<(u32, Patch)> {
        let number = look.stores.first().map_or(0, |store| store.number);
        self.stores.merged += look.stores.len().saturating_sub(1);
        let built = self.builder(view, number).look(look)?;
        Ok((number, self.stores.built(built)))
    }

    /// The check of an instruction that shares it with no other.
    fn alone(&mut self, view: &FunctionView<'_>, number: u32, access: Access) -> Result<Option<Patch>> {
        let count = match access {
            Access::Nothing => return Ok(None),
            Access::Free(reason) => {
                self.stores.free(reason);
                return Ok(None);
            }
            Access::Store(..) => &mut self.stores.odd,
            Access::User(..) | Access::UserRange(_) => &mut self.stores.user,
            Access::Bit(..) => &mut self.stores.bits,
            Access::Range(_) => &mut self.stores.strings,
            Access::PerCpu(..) => &mut self.stores.per_cpu,
            Access::Call(_) => &mut self.stores.calls,
        };
        *count += 1;
        self.stores.checked += usize::from(!matches!(access, Access::Call(_)));
        let mut builder = self.builder(view, number);
        let built = match access {
            Access::Store(operand, size) => {
                builder.asks.operand(operand, Operand::address, |register| Ask::Write(register, size))
            }
            Access::User(operand, size) => builder.user(operand, size),
            Access::UserRange(bytes) => builder.user_range(bytes),
            Access::Bit(operand, index, width) => builder.bit(operand, index, width),
            Access::Range(shift) => builder.range(shift),
            Access::PerCpu(operand, size) => {
                builder.asks.operand(operand, Operand::address, |register| Ask::PerCpu(register, size))
            }
            Access::Call(register) => builder.call(register),
            Access::Nothing | Access::Free(_) => return Ok(None),
        }?;
        Ok(Some(self.stores.built(built)))
    }
}
