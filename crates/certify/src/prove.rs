//! What must be proven of stores, calls, jumps and returns.

use crate::border::RECORD;
use crate::elf::Target;
use crate::graph::{Dest, Node, Number};
use crate::mode::{Ask, Mode};
use crate::state::{Fact, Flags, KEPT, LOST, RCX, RDI, RSP, State};
use crate::step::number;
use crate::tables;
use crate::value::{Atom, Val};
use crate::walk::Walk;
use crate::writing::{encrypts, odd, padlock_size, writes};
use guardrail_abi::{self as abi, symbol};
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register, UsedMemory};

/// Per-CPU variables of the kernel that its inlined code writes, and the runtime's that loops count down.
const KERNEL_PER_CPU: [(&str, i64); 3] = [("__preempt_count", 0), ("pcpu_hot", 8), (symbol::LOOPS, 0)];

/// Most words of arguments on the stack that a function writes.
const MAX_WORDS: i64 = 64;

impl Walk<'_, '_> {
    /// Proves an instruction's stores.
    pub fn stores(&mut self, at: Number, node: &Node, state: &mut State) {
        let insn = &node.insn;
        if !node.stores {
            return;
        }
        let info = self.info.info(insn);
        let written: Vec<UsedMemory> =
            info.used_memory().iter().filter(|memory| writes(memory.access())).copied().collect();
        let explicit = (0..insn.op_count())
            .any(|operand| insn.op_kind(operand) == OpKind::Memory && writes(info.op_access(operand)));
        let Some(first) = written.first() else {
            if odd(insn) {
                self.fault(at, format!("`{insn}` writes to a place that cannot be followed"));
            }
            return;
        };
        if insn.is_stack_instruction() && !explicit {
            return;
        }
        let size = match insn.is_string_instruction() {
            true => insn.memory_size().size(),
            false => first.memory_size().size(),
        } as i64;
        let address = match explicit && !insn.is_string_instruction() {
            true => self.address(node, state),
            false if first.base() == Register::RDI || first.base().is_gpr64() => {
                Some(state.regs[first.base().number()].plus(first.displacement() as i64))
            }
            false => None,
        };
        if insn.memory_index().is_vector_register()
            || (written.len() > 1 && repeated(insn).is_none() && !insn.is_string_instruction())
        {
            self.fault(at, format!("`{insn}` writes to several places"));
        } else {
            self.store(at, node, state, address, size);
        }
        self.stored(node, state, address, size);
    }

    /// Proves one store.
    fn store(&mut self, at: Number, node: &Node, state: &State, address: Option<Val>, size: i64) {
        let insn = &node.insn;
        if self.replaced(node) {
            return self.count(|counts| &mut counts.replaced);
        }
        let Some(address) = address else {
            return self.fault(at, format!("`{insn}` writes to a place that cannot be followed"));
        };
        let named = self.names(node).immediate.is_some();
        if same(insn) && !named && (insn.has_lock_prefix() || self.of_stack(address)) {
            return self.count(|counts| &mut counts.same);
        }
        if let Some((index, width)) = bit(insn) {
            let byte = self.bit(state, address, index, width);
            return match byte.is_some_and(|byte| state.writes(byte, 1)) {
                true => self.count(|counts| &mut counts.checked),
                false => self.fault(at, format!("`{insn}` is not checked")),
            };
        }
        if let Some(shift) = repeated(insn) {
            let range = Fact::Range(state.regs[usize::from(RDI)], state.regs[usize::from(RCX)], shift);
            return match state.shows(range) {
                true => self.count(|counts| &mut counts.checked),
                false => self.fault(at, format!("`{insn}` is not checked")),
            };
        }
        let size = if size == 0 { padlock_size(insn).unwrap_or(0) } else { size };
        if size == 0 {
            return self.fault(at, format!("`{insn}` writes as much as nobody knows"));
        }
        match insn.segment_prefix() {
            Register::GS => return self.per_cpu(at, insn, state, address, size),
            Register::FS => return self.fault(at, format!("`{insn}` writes by a segment without use")),
            _ => {}
        }
        let faults = self.module.tables.fixups.contains_key(&node.place);
        if state.writes(address, size) || (faults && state.shows(Fact::User(address, size))) {
            self.count(|counts| &mut counts.checked);
        } else if self.in_frame(state, address, size) {
            self.count(|counts| &mut counts.frame);
            self.record_store(at, node, state, address);
        } else if let Some(words) = self.arguments(state, address, size) {
            self.count(|counts| &mut counts.frame);
            for root in self.roots.clone() {
                let most = self.found.words.entry(root).or_default();
                *most = words.max(*most);
            }
        } else {
            self.fault(at, format!("`{insn}` is not checked"));
        }
    }

    /// How many words of its arguments on the stack a function writes at an address; `None` if it writes
    /// something else. Whether its callers have put so many there is found out where they call.
    fn arguments(&self, state: &State, address: Val, size: i64) -> Option<i64> {
        let own = self.module.mode_of(self.node(self.root).place.0) == Mode::Own;
        let frame = matches!(self.values.single(address), Some(Atom::Init(RSP)));
        let above = address.base == state.sp().base && address.off >= 8;
        // The first argument stands behind the return address.
        let words = address.off.checked_add(size - 1)? / 8;
        (own && frame && above && words <= MAX_WORDS).then_some(words)
    }

    /// A function that is called writes its arguments: they must be there, in the caller's own frame.
    fn lends(&mut self, at: Number, to: Number, state: &mut State) {
        self.found.called.insert(to);
        let Some(words) = self.module.words.get(&to).copied() else { return };
        let limit = if self.module.mode(at) == Mode::Entry { RECORD } else { 0 };
        let sp = state.sp();
        if self.top(sp).is_none_or(|top| top.saturating_add(8 * words) > limit) {
            self.fault(at, "it calls a function that writes more arguments on the stack than it gets");
        }
        state.overwrite(sp, 8 * words);
    }

    /// What a store changes of what is known: words of the stack.
    fn stored(&mut self, node: &Node, state: &mut State, address: Option<Val>, size: i64) {
        let insn = &node.insn;
        let Some(address) = address.filter(|address| self.of_stack(*address) && size > 0) else {
            return self.forget_words(state);
        };
        if self.values.single(address).is_none() {
            return self.forget_words(state);
        }
        state.overwrite(address, size);
        let plain = insn.code() == Code::Mov_rm64_r64;
        if let Some(register) = number(insn.op1_register()).filter(|_| plain) {
            state.slots.push((address, state.regs[usize::from(register)]));
            state.slots.sort_unstable();
        }
    }

    /// Forgets the words of the stack that a store by pointer, or a function that was called, may change.
    /// Saved registers stay, and the place above the return address, by which a frame that is aligned is left:
    /// whether they may be written is the frame's own protection.
    fn forget_words(&self, state: &mut State) {
        state.slots.retain(|(_, value)| {
            let kept = match self.values.single(*value) {
                Some(Atom::Init(register)) => register != RSP && value.off == 0 && KEPT.contains(&register),
                Some(Atom::Return) => value.off == 0,
                _ => false,
            };
            kept || matches!(self.values.single(*value), Some(Atom::Init(RSP)) if value.off == 8)
        });
    }

    /// The byte that holds a bit: the number in a register counts from the operand.
    fn bit(&mut self, state: &State, address: Val, index: u8, width: u8) -> Option<Val> {
        let index = state.regs[usize::from(index)];
        let index = if width == 8 { index } else { self.values.atom(Atom::Extended(index, width)) };
        let bits = self.values.times(address, 8);
        let bits = self.values.add(bits, index)?;
        Some(self.values.atom(Atom::Sar(bits, 3)))
    }

    /// Whether the kernel may put something else in place of an instruction.
    fn replaced(&self, node: &Node) -> bool {
        let section = &self.module.elf.sections[node.place.0 as usize].name;
        section == tables::REPLACEMENTS || self.module.tables.replaces(node.place)
    }

    /// Whether the bytes lie in the function's own frame, between the stack pointer and the return address.
    fn in_frame(&self, state: &State, address: Val, size: i64) -> bool {
        let sp = state.sp();
        let above = address.base == sp.base && address.off >= sp.off;
        above && self.top(address).is_some_and(|top| top.saturating_add(size) <= 0)
    }

    /// The highest distance from the return address at which an address of the stack may be.
    fn top(&self, address: Val) -> Option<i64> {
        match self.values.single(address)? {
            Atom::Init(RSP) => Some(address.off),
            Atom::Down(inner, _) => Some(self.top(inner)?.saturating_add(address.off)),
            _ => None,
        }
    }

    fn per_cpu(&mut self, at: Number, insn: &Instruction, state: &State, address: Val, size: i64) {
        let known = match self.values.single(address) {
            Some(Atom::Address(Target::In(section))) => {
                let section = &self.module.elf.sections[section as usize];
                let inside = address.off >= 0 && address.off.saturating_add(size) <= section.size as i64;
                section.name.starts_with(".data..percpu") && inside
            }
            Some(Atom::Address(Target::Import(import))) => {
                KERNEL_PER_CPU.contains(&(self.module.elf.import(import), address.off)) && size <= 4
            }
            _ => false,
        };
        if known {
            self.count(|counts| &mut counts.own);
        } else if state.shows(Fact::PerCpu(address, size as u32)) {
            self.count(|counts| &mut counts.checked);
        } else {
            self.fault(at, format!("`{insn}` is not checked"));
        }
    }

    /// Follows a call, and proves that it may be made.
    pub fn call(&mut self, at: Number, node: &Node, state: &mut State) {
        match node.to {
            Some(Dest::Code(to)) => {
                let root = self.module.graph.at(to);
                if (root.is_none() && !self.module.graph.trusts(to)) || to == node.behind() {
                    self.fault(at, format!("`{}` calls what is no function", node.insn));
                }
                if let Some(ask) = root.and_then(|root| self.module.asks.get(&root)) {
                    return self.asks(at, node, *ask, state);
                }
                self.spilled(at, node, state, false);
                self.border_call(at, Dest::Code(to), state);
                if let Some(root) = root {
                    self.lends(at, root, state);
                }
            }
            Some(Dest::Import(import)) => {
                let name = self.module.elf.import(import);
                if name == tables::TRACER {
                    return;
                }
                self.spilled(at, node, state, false);
                self.imported(at, node, import, state);
                self.border_call(at, Dest::Import(import), state);
            }
            // The hypervisor is called, as privileged as it is.
            None if matches!(node.insn.mnemonic(), Mnemonic::Vmcall | Mnemonic::Vmmcall) => {
                if self.last {
                    self.found.privileged.push(at);
                }
            }
            None => {
                self.spilled(at, node, state, false);
                self.indirect(at, node, state);
            }
        }
        self.called(at, state);
    }

    /// What a call leaves behind. The slow paths of the runtime do not write the frames of their callers.
    fn called(&mut self, at: Number, state: &mut State) {
        for register in LOST {
            state.regs[usize::from(register)] = self.values.atom(Atom::Fresh(at, register));
        }
        state.flags = Flags::Unknown;
        state.forget_rights();
        if self.module.mode(at) != Mode::Ask {
            self.forget_words(state);
        }
    }

    /// Proves that an import may be called, or jumped to, at this place.
    fn imported(&mut self, at: Number, node: &Node, import: u32, state: &State) {
        let module = self.module;
        let name = module.elf.import(import);
        if let Some(register) = tables::indirect(name) {
            return self.checked_call(at, node, state.regs[usize::from(register)], state);
        }
        let mode = module.mode(at);
        if name.starts_with(abi::PREFIX) {
            if mode == Mode::Own {
                self.fault(at, format!("it calls the runtime's {name} by itself"));
            }
        } else if module.wrapped.contains_key(&import) && mode != Mode::Call {
            match self.replaced(node) {
                true => self.count(|counts| &mut counts.replaced),
                false => self.fault(at, format!("it calls {name} past its thunk")),
            }
        } else if mode == Mode::Own && !name.starts_with("__") {
            self.count(|counts| &mut counts.plain);
        }
    }

    /// Proves a call or jump to an address in a register or in memory.
    fn indirect(&mut self, at: Number, node: &Node, state: &State) {
        let insn = &node.insn;
        if self.replaced(node) {
            return self.count(|counts| &mut counts.replaced);
        }
        match number(insn.op0_register()).filter(|_| insn.op0_kind() == OpKind::Register) {
            Some(register) => self.checked_call(at, node, state.regs[usize::from(register)], state),
            None => self.fault(at, format!("`{insn}` takes its target from memory")),
        }
    }

    fn checked_call(&mut self, at: Number, node: &Node, target: Val, state: &State) {
        if self.replaced(node) {
            self.count(|counts| &mut counts.replaced);
        } else if state.shows(Fact::Call(target)) {
            self.count(|counts| &mut counts.calls);
        } else {
            self.fault(at, format!("the target of `{}` is not checked", node.insn));
        }
    }

    /// The runtime is asked, by a thunk that keeps all registers.
    fn asks(&mut self, at: Number, node: &Node, ask: Ask, state: &mut State) {
        self.spilled(at, node, state, true);
        let regs = state.regs;
        let value = |register: u8| regs[usize::from(register)];
        match ask {
            Ask::Write(register, size) => {
                let address = value(register);
                state.show_writable(address, size);
                state.show(Fact::User(address, size));
            }
            Ask::Range(shift) => state.show(Fact::Range(value(RDI), value(RCX), shift)),
            Ask::PerCpu(register, size) => state.show(Fact::PerCpu(value(register), size as u32)),
            // The answer is what to call.
            Ask::Call(register) => {
                let answer = self.values.atom(Atom::Fresh(at, register));
                state.regs[usize::from(register)] = answer;
                state.show(Fact::Call(answer));
            }
            Ask::Other => {}
        }
        state.flags = Flags::Unknown;
        if self.last {
            self.names_site(at, node, ask);
        }
    }

    /// The distance behind the call of a thunk must lead to an instruction of the kind that was asked for.
    fn names_site(&mut self, at: Number, node: &Node, ask: Ask) {
        let graph = &self.module.graph;
        let note = graph.at(node.behind()).map(|number| &graph.nodes[number as usize]);
        let site = note.filter(|note| note.insn.len() == 5).and_then(|note| match note.insn.code() {
            Code::Jmp_rel32_64 => Some((note.place.0, note.insn.near_branch64())),
            Code::Test_EAX_imm32 => {
                let far = i64::from(note.insn.immediate32() as i32);
                Some((note.place.0, note.behind().1.wrapping_add_signed(far)))
            }
            _ => None,
        });
        let Some(site) = site.and_then(|site| graph.at(site)) else {
            return self.fault(at, "it asks the runtime for what is no instruction");
        };
        let insn = &graph.nodes[site as usize].insn;
        let stores =
            |walk: &mut Self| walk.info.info(insn).used_memory().iter().any(|memory| writes(memory.access()));
        let good = match ask {
            Ask::Write(..) | Ask::Range(_) | Ask::PerCpu(..) => stores(self),
            Ask::Call(_) => !matches!(insn.flow_control(), FlowControl::Next),
            Ask::Other => true,
        };
        if !good {
            self.fault(at, format!("it asks the runtime for `{insn}`, which does something else"));
        }
    }

    /// Proves returns, and jumps out of the function.
    pub fn leaves(&mut self, at: Number, state: &State) {
        let node = self.node(at);
        match (node.insn.flow_control(), node.to) {
            (FlowControl::Return, _) => {
                if node.insn.op_count() > 0 || !matches!(node.insn.code(), Code::Retnq) {
                    self.fault(at, format!("`{}` is not how a function returns", node.insn));
                }
                self.returns(at, state);
            }
            (FlowControl::IndirectBranch, _) => {
                self.indirect(at, node, state);
                self.ends(at, state);
            }
            (
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch,
                Some(Dest::Import(import)),
            ) => {
                if self.module.elf.import(import) == tables::RETURN_THUNK {
                    return self.returns(at, state);
                }
                self.imported(at, node, import, state);
                self.border_jump(at, import, state);
                self.ends(at, state);
            }
            (FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch, Some(Dest::Code(to)))
                if self.module.graph.trusts(to) =>
            {
                self.ends(at, state);
            }
            (FlowControl::Interrupt, _) if !matches!(node.insn.mnemonic(), Mnemonic::Int3) => {
                self.fault(at, format!("`{}` enters the kernel", node.insn));
            }
            _ => {}
        }
    }

    fn returns(&mut self, at: Number, state: &State) {
        self.count(|counts| &mut counts.returns);
        self.ends(at, state);
        self.border_return(at, state);
    }
}

/// Whether the instruction writes back what was there, as a barrier does. Without a lock it may write back what
/// another processor has changed meanwhile.
fn same(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Add | Mnemonic::Sub | Mnemonic::Or | Mnemonic::Xor)
        && !matches!(insn.op1_kind(), OpKind::Register | OpKind::Memory)
        && insn.immediate(1) == 0
}

/// The register with the number of a bit, and its bytes.
fn bit(insn: &Instruction) -> Option<(u8, u8)> {
    let width = match insn.code() {
        Code::Bts_rm64_r64 | Code::Btr_rm64_r64 | Code::Btc_rm64_r64 => 8,
        Code::Bts_rm32_r32 | Code::Btr_rm32_r32 | Code::Btc_rm32_r32 => 4,
        Code::Bts_rm16_r16 | Code::Btr_rm16_r16 | Code::Btc_rm16_r16 => 2,
        _ => return None,
    };
    Some((number(insn.op1_register())?, width))
}

/// The power of two of the elements of a string instruction that repeats.
fn repeated(insn: &Instruction) -> Option<u8> {
    if encrypts(insn) {
        return Some(4);
    }
    let repeats = insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix());
    repeats.then(|| insn.memory_size().size().trailing_zeros() as u8)
}
