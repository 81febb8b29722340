//! Whether a guard that was taken out was needed: what checks show is followed through the function again, by
//! simpler means than certifying has, in the whole module and without the guard. It was not needed if each
//! store keeps the checks that it has.

use super::{ASK, Insn, Module, Text, sweep, writes};
use guardrail_abi::{self as abi, symbol};
use iced_x86::{Code, FlowControl, InstructionInfoFactory, Mnemonic, OpKind, Register, UsedMemory};
use libtest_mimic::Failed;
use std::collections::{BTreeMap, BTreeSet};

/// What an address is relative to: base, index, and scale.
type Key = (Register, Register, u32);

/// What is known at an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    /// Bytes that checks have shown to be writable.
    bytes: BTreeMap<Key, BTreeSet<i64>>,
    /// Pairs of registers that hold the same.
    equal: BTreeSet<(Register, Register)>,
}

impl Known {
    fn show(&mut self, (key, at): (Key, i64), count: i64) {
        self.bytes.entry(key).or_default().extend(at..at + count);
    }

    /// Forgets what depends on a register.
    fn lose(&mut self, register: Register) {
        self.bytes.retain(|key, _| key.0 != register && key.1 != register);
        self.equal.retain(|pair| pair.0 != register && pair.1 != register);
    }

    /// Keeps what another way knows as well.
    fn meet(&mut self, other: &Known) {
        let keys: BTreeSet<Key> = self.bytes.keys().chain(other.bytes.keys()).copied().collect();
        let both = |key| (key, self.all(key).intersection(&other.all(key)).copied().collect::<BTreeSet<_>>());
        self.bytes = keys.into_iter().map(both).filter(|(_, bytes)| !bytes.is_empty()).collect();
        self.equal.retain(|pair| other.equal.contains(pair));
    }

    /// The bytes that were shown, also by a register that holds the same as the base.
    fn all(&self, key: Key) -> BTreeSet<i64> {
        let same = |base: Register| {
            base == key.0 || self.equal.contains(&(base, key.0)) || self.equal.contains(&(key.0, base))
        };
        let keys = self.bytes.iter().filter(|(own, _)| same(own.0) && (own.1, own.2) == (key.1, key.2));
        keys.flat_map(|(_, bytes)| bytes).copied().collect()
    }

    /// Which of these bytes were shown.
    fn shown(&self, (key, at): (Key, i64), count: i64) -> BTreeSet<i64> {
        self.all(key).range(at..at + count).copied().collect()
    }
}

/// What is known of the stores of a function: by place, the instruction's bytes, what it writes, and which of
/// that was shown. Of a store that is not understood all that is known counts.
type Stores = BTreeMap<u64, (Vec<u8>, Option<i64>, BTreeSet<i64>, Option<Known>)>;

/// Whether the module `without` a guard at a place can do no more than the `whole` one.
pub fn idle(whole: &[u8], without: &[u8], section: &str, at: u64) -> Result<bool, Failed> {
    let (Some(before), Some(after)) = (stores(whole, section, at)?, stores(without, section, at)?) else {
        return Ok(false);
    };
    let places = before.keys().eq(after.keys());
    Ok(places
        && before.iter().all(|(place, (bytes, _, shown, known))| {
            let (changed, size, still, then) = &after[place];
            match (known, then) {
                // All that it writes was shown.
                (None, None) if bytes != changed => size.is_some_and(|size| still.len() as i64 == size),
                (None, None) => still.is_superset(shown),
                _ => bytes == changed && known == then,
            }
        }))
}

fn stores(file: &[u8], section: &str, at: u64) -> Result<Option<Stores>, Failed> {
    let module = Module::read(file)?;
    let Some(code) = module.codes.iter().find(|code| code.name == section) else { return Ok(None) };
    let within = |place: &(String, u64), end: u64| place.0 == section && place.1 <= at && at < end;
    let Some((start, end)) = module
        .functions
        .iter()
        .find(|(place, (_, end))| within(place, *end))
        .map(|(place, (_, end))| (place.1, *end))
    else {
        return Ok(None);
    };
    let mut function = Function {
        module: &module,
        code,
        insns: sweep(code, start, end),
        entered: BTreeSet::new(),
        fixups: BTreeMap::new(),
        targets: BTreeSet::new(),
    };
    function.entered = function.find_entered();
    function.fixups = function.find_fixups();
    function.targets = function.entered.clone();
    function.targets.extend(function.fixups.values().flatten());
    function.targets.extend(function.insns.iter().map(|insn| insn.insn.near_branch_target()));
    Ok(function.follow(file))
}

struct Function<'a> {
    module: &'a Module,
    code: &'a Text,
    insns: Vec<Insn<'a>>,
    /// Where control comes from elsewhere.
    entered: BTreeSet<u64>,
    /// Where the kernel goes on after faults, by instruction.
    fixups: BTreeMap<u64, Vec<u64>>,
    /// Where control comes by any way but from the instruction before.
    targets: BTreeSet<u64>,
}

impl Function<'_> {
    fn number(&self, place: u64) -> Option<usize> {
        self.insns.binary_search_by_key(&place, |insn| insn.insn.ip()).ok()
    }

    /// Where a relocation or a branch of the module leads into this function, beside its own branches.
    fn find_entered(&self) -> BTreeSet<u64> {
        let mut entered = BTreeSet::new();
        let bounds = self.insns[0].insn.ip()..self.insns[self.insns.len() - 1].insn.next_ip();
        let mut place = |name: &str, at: i64| {
            entered.extend((at..at + 9).filter(|_| name == self.code.name).map(|at| at as u64));
        };
        let base = |symbol: u32| self.module.homes[symbol as usize].clone();
        let no_flow =
            [".orc_unwind_ip", "__mcount_loc", ".return_sites", ".smp_locks", ".call_sites", "__bug_table"];
        for (section, relocs) in self.module.data.iter().filter(|one| !no_flow.contains(&one.0.as_str())) {
            for reloc in relocs.iter().filter(|_| section != "__ex_table").map(|one| one.1) {
                let (home, value) = base(reloc.symbol);
                place(&home, reloc.addend + value as i64);
            }
        }
        for code in &self.module.codes {
            for reloc in code.relocs.values() {
                let (home, value) = base(reloc.symbol);
                place(&home, reloc.addend + value as i64);
            }
        }
        for ((_, start), (_, end)) in
            self.module.functions.iter().filter(|function| function.0.0 == self.code.name)
        {
            let others =
                sweep(self.code, *start, *end).into_iter().filter(|insn| !bounds.contains(&insn.insn.ip()));
            entered.extend(others.map(|insn| insn.insn.near_branch_target()));
        }
        entered
    }

    /// Where the kernel goes on after faults, by instruction.
    fn find_fixups(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut fixups: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let tables = self.module.data.iter().filter(|one| one.0 == "__ex_table");
        for relocs in tables.map(|one| &one.1) {
            for (at, from) in relocs.iter().filter(|row| row.0.is_multiple_of(12)) {
                let Some(to) = relocs.get(&(at + 4)) else { continue };
                let own = |symbol: u32| {
                    let (home, value) = &self.module.homes[symbol as usize];
                    (*home == self.code.name).then_some(*value)
                };
                if let (Some(first), Some(second)) = (own(from.symbol), own(to.symbol)) {
                    let row = fixups.entry(first.wrapping_add_signed(from.addend)).or_default();
                    row.push(second.wrapping_add_signed(to.addend));
                }
            }
        }
        fixups
    }

    fn follow(&self, file: &[u8]) -> Option<Stores> {
        let mut info = InstructionInfoFactory::new();
        let mut known: Vec<Option<Known>> = vec![None; self.insns.len()];
        for (number, insn) in self.insns.iter().enumerate() {
            if number == 0 || self.entered.contains(&insn.insn.ip()) {
                known[number] = Some(Known::default());
            }
        }
        let mut open: BTreeSet<usize> =
            (0..self.insns.len()).filter(|number| known[*number].is_some()).collect();
        while let Some(number) = open.pop_first() {
            let before = known[number].clone()?;
            let insn = &self.insns[number].insn;
            let behind = self.behind(number, before.clone(), &mut info);
            let mut ways: Vec<(u64, Known)> = Vec::new();
            let near = (0..insn.op_count()).any(|operand| insn.op_kind(operand) == OpKind::NearBranch64);
            let jumps = matches!(
                insn.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            );
            if near && jumps && self.insns[number].reloc.is_none() {
                ways.push((insn.near_branch_target(), before.clone()));
            }
            if !matches!(
                insn.flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
            ) {
                ways.push((insn.next_ip(), behind));
            }
            let fixed = self.fixups.get(&insn.ip()).into_iter().flatten();
            ways.extend(fixed.map(|to| (*to, before.clone())));
            for (to, then) in ways {
                let Some(to) = self.number(to) else { continue };
                let met = match &known[to] {
                    None => then,
                    Some(own) => {
                        let mut met = own.clone();
                        met.meet(&then);
                        met
                    }
                };
                if known[to].as_ref() != Some(&met) {
                    known[to] = Some(met);
                    open.insert(to);
                }
            }
        }
        let mut stores = Stores::new();
        for (insn, known) in self.insns.iter().zip(&known) {
            let Some(known) = known else { continue };
            let used = info.info(&insn.insn).used_memory();
            let written: Vec<UsedMemory> =
                used.iter().filter(|memory| writes(memory.access())).copied().collect();
            if written.is_empty() || insn.insn.is_stack_instruction() {
                continue;
            }
            let bytes = file[insn.at..insn.at + insn.insn.len()].to_vec();
            let size = written[0].memory_size().size() as i64;
            let bits = matches!(insn.insn.mnemonic(), Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc);
            let plain = written.len() == 1
                && size > 0
                && insn.insn.op0_kind() == OpKind::Memory
                && !(bits || insn.insn.is_string_instruction());
            // Its place is in the instruction: no check is about it.
            let fixed =
                insn.insn.memory_base() == Register::RIP && insn.insn.memory_index() == Register::None;
            let row = match operand(insn).filter(|_| plain) {
                Some(operand) => (bytes, Some(size), known.shown(operand, size), None),
                None if plain && fixed => (bytes, None, BTreeSet::new(), None),
                None => (bytes, None, BTreeSet::new(), Some(known.clone())),
            };
            stores.insert(insn.insn.ip(), row);
        }
        Some(stores)
    }

    /// What is known behind an instruction that does not branch.
    fn behind(&self, number: usize, mut known: Known, info: &mut InstructionInfoFactory) -> Known {
        let insn = &self.insns[number];
        if let Some((operand, size)) = self.asked(number) {
            if size > 0 {
                known.show(operand, size);
            }
            return known;
        }
        if matches!(insn.insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return Known::default();
        }
        if let Some((operand, from, count)) = self.looked(number) {
            known.show((operand.0, operand.1 + from), count);
        }
        let used = info.info(&insn.insn).used_registers();
        for register in used.iter().filter(|used| writes(used.access())).map(|used| used.register()) {
            known.lose(register.full_register());
        }
        let (to, from) = (insn.insn.op0_register(), insn.insn.op1_register());
        let moves = insn.insn.mnemonic() == Mnemonic::Mov && insn.insn.op1_kind() == OpKind::Register;
        if moves && to.is_gpr64() && from.is_gpr64() && to != from {
            known.equal.insert((to, from));
        }
        known
    }

    /// The address and size that a call asks the runtime for; a size of 0 for what is not about stores.
    fn asked(&self, number: usize) -> Option<((Key, i64), i64)> {
        let call = &self.insns[number];
        let reloc = call.reloc.filter(|_| call.insn.code() == Code::Call_rel32_64)?;
        if self.module.home(reloc.symbol) != ASK {
            return None;
        }
        let nothing = (((Register::None, Register::None, 0), 0), 0);
        let start = (reloc.addend + 4) as u64 + self.module.homes[reloc.symbol as usize].1;
        let code = self.module.codes.iter().find(|code| code.name == ASK)?;
        let end = self.module.functions.get(&(ASK.to_owned(), start))?.1;
        let thunk = sweep(code, start, end);
        let writes =
            thunk.iter().any(|insn| insn.reloc.is_some_and(|reloc| reloc.name == symbol::WRITE_SLOW));
        let size = thunk.iter().find(|insn| {
            insn.insn.code() == Code::Mov_r32_imm32 && insn.insn.op0_register() == Register::ESI
        });
        let from = thunk
            .iter()
            .find(|insn| insn.insn.mnemonic() == Mnemonic::Mov && insn.insn.op0_register() == Register::RDI);
        let from = from.map_or(Register::RDI, |insn| insn.insn.op1_register());
        let alone = !self.targets.contains(&call.insn.ip());
        let lea = number.checked_sub(1).filter(|_| alone).map(|before| &self.insns[before]);
        let address =
            lea.filter(|lea| lea.insn.mnemonic() == Mnemonic::Lea && lea.insn.op0_register() == from);
        match (address.and_then(operand), size) {
            (Some(operand), Some(size)) if writes => Some((operand, i64::from(size.insn.immediate32()))),
            _ => Some(nothing),
        }
    }

    /// What a look at the table has shown behind its jump: the address, the first byte from it, and how many.
    fn looked(&self, number: usize) -> Option<((Key, i64), i64, i64)> {
        let [compare, jump] = self.insns.get(number.checked_sub(1)?..=number)? else { return None };
        if jump.insn.code() != Code::Jne_rel32_64 || compare.insn.mnemonic() != Mnemonic::Cmp {
            return None;
        }
        let write = u32::from(abi::tag(1, abi::WRITE));
        let count = match compare.insn.code() {
            Code::Cmp_rm8_imm8 if u32::from(compare.insn.immediate8()) == write => 1,
            Code::Cmp_rm16_imm16 if u32::from(compare.insn.immediate16()) == write * 0x0101 => 2,
            Code::Cmp_rm32_imm32 if compare.insn.immediate32() == write * 0x0101_0101 => 4,
            _ => return None,
        };
        let at = compare.insn.memory_base();
        let slot = compare.insn.memory_displacement64() as i64;
        if compare.insn.memory_index() != Register::None || compare.reloc.is_some() {
            return None;
        }
        // Back over the other comparisons to the address of the table, and over what has made it.
        let mut back = number - 1;
        while matches!(self.insns[back].insn.mnemonic(), Mnemonic::Cmp | Mnemonic::Jne) {
            back = back.checked_sub(1)?;
        }
        let table = &self.insns[back];
        if table.insn.mnemonic() != Mnemonic::Add
            || table.insn.op0_register() != at
            || table.reloc.is_none_or(|reloc| reloc.name != symbol::TABLE)
        {
            return None;
        }
        let (mut shifted, mut rotated, mut aligned) = (0, 0, false);
        loop {
            back = back.checked_sub(1)?;
            let insn = &self.insns[back].insn;
            match insn.mnemonic() {
                Mnemonic::Shr if insn.op0_register() == at => shifted += u32::from(insn.immediate8()),
                Mnemonic::Ror if insn.op0_register() == at => rotated += u32::from(insn.immediate8()),
                Mnemonic::Jne => {}
                Mnemonic::Lahf | Mnemonic::Seto if at != Register::RAX => {}
                Mnemonic::Test
                    if insn.op0_register().full_register() == at
                        && insn.op1_kind() == OpKind::Immediate8
                        && insn.immediate8() == 7 =>
                {
                    aligned = true;
                }
                Mnemonic::Lea if insn.op0_register() == at => break,
                _ => return None,
            }
        }
        if self.insns[back + 1..=number].iter().any(|insn| self.targets.contains(&insn.insn.ip())) {
            return None;
        }
        let operand = operand(&self.insns[back]).filter(|_| !operand_uses(&self.insns[back], at))?;
        match (rotated, shifted) {
            (3, 0) => Some((operand, 8 * slot, 8 * count)),
            (0, 3) if aligned => Some((operand, 8 * slot, 8 * count)),
            (0, 3) => Some((operand, 8 * slot, 1)),
            (rotated @ 1..3, shifted) if rotated + shifted == 3 && slot == 0 && count == 1 => {
                Some((operand, 0, 1 << rotated))
            }
            _ => None,
        }
    }
}

fn operand_uses(insn: &Insn<'_>, register: Register) -> bool {
    insn.insn.memory_base() == register || insn.insn.memory_index() == register
}

/// The operand in memory: what it is relative to, and the distance.
fn operand(insn: &Insn<'_>) -> Option<(Key, i64)> {
    let decoded = &insn.insn;
    let base = decoded.memory_base();
    let memory = (0..decoded.op_count()).any(|operand| decoded.op_kind(operand) == OpKind::Memory);
    let plain =
        memory && base.is_gpr64() && insn.reloc.is_none() && decoded.segment_prefix() == Register::None;
    plain.then(|| {
        let key = (base, decoded.memory_index(), decoded.memory_index_scale());
        (key, decoded.memory_displacement64() as i64)
    })
}
