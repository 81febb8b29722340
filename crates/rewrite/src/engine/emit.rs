//! Makes the instructions that passes put in, and sections of new code.

use crate::engine::object::{Object, Reloc, Section, SectionIndex, Symbol, reloc};
use crate::engine::orc;
use crate::engine::patch::Op;
use crate::engine::tables;
use crate::error::{Result, refused};
use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, OpKind, Register};

/// `jmp`, `jne`, `js` by 32 bits.
pub const JMP: [u8; 1] = [0xe9];
pub const JA: [u8; 2] = [0x0f, 0x87];
pub const JE: [u8; 2] = [0x0f, 0x84];
pub const JNE: [u8; 2] = [0x0f, 0x85];
pub const JS: [u8; 2] = [0x0f, 0x88];
/// New functions begin at multiples of this.
const ALIGN: usize = 16;
/// The table of jumps to that function; the kernel turns some of them into plain returns.
const RETURN_SITES: &str = ".return_sites";

/// The kind of a row of `__ex_table` that makes the kernel go on elsewhere (`EX_TYPE_DEFAULT`).
const EX_DEFAULT: u32 = 1;

/// Encodes an instruction at its own address (`ip`).
pub fn encode(insn: &Instruction) -> Result<Vec<u8>> {
    let mut encoder = Encoder::new(64);
    match encoder.encode(insn, insn.ip()) {
        Ok(_) => Ok(encoder.take_buffer()),
        Err(error) => refused(format!("{:#x}", insn.ip()), format!("cannot encode `{insn}`: {error}")),
    }
}

/// An instruction without relocation.
pub fn plain(insn: std::result::Result<Instruction, IcedError>) -> Result<Op> {
    match insn {
        Ok(insn) => Ok(Op::Code(encode(&insn)?, None)),
        Err(error) => refused("a patch", error.to_string()),
    }
}

/// `push` of a register.
pub fn push(register: Register) -> Result<Op> {
    plain(Instruction::with1(Code::Push_r64, register))
}

/// `pop` of a register.
pub fn pop(register: Register) -> Result<Op> {
    plain(Instruction::with1(Code::Pop_r64, register))
}

/// An instruction with a memory operand relative to itself. A relocation gives the operand's place: `symbol`
/// + `addend`.
pub fn relative(insn: std::result::Result<Instruction, IcedError>, symbol: usize, addend: i64) -> Result<Op> {
    let Op::Code(mut bytes, _) = plain(insn)? else { return refused("a patch", "it is no instruction") };
    let at = displacement(&bytes)?;
    bytes[at..at + 4].fill(0);
    let behind = (bytes.len() - at) as i64;
    Ok(Op::Code(bytes, Some(Reloc { offset: at as u64, kind: reloc::PC32, symbol, addend: addend - behind })))
}

/// A memory operand relative to the instruction.
pub fn relative_operand() -> MemoryOperand {
    // Any address near by; a relocation fills it in.
    MemoryOperand::with_base_displ(Register::RIP, 0)
}

/// The variable of a CPU, relative to the instruction.
pub fn per_cpu() -> MemoryOperand {
    MemoryOperand { segment_prefix: Register::GS, ..relative_operand() }
}

/// `call` of a symbol, or `jmp` with `tail`.
pub fn go(symbol: usize, tail: bool) -> Op {
    go_to(symbol, 0, tail)
}

/// `call` or `jmp` of a place so many bytes behind a symbol.
pub fn go_to(symbol: usize, offset: i64, tail: bool) -> Op {
    let bytes = vec![if tail { 0xe9 } else { 0xe8 }, 0, 0, 0, 0];
    Op::Code(bytes, Some(Reloc { offset: 1, kind: reloc::PLT32, symbol, addend: offset - 4 }))
}

/// A place in memory, as an instruction names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The register that it counts from; RIP if it is relative to the instruction.
    pub base: Register,
    /// The register that is added, times `scale`.
    pub index: Register,
    /// The factor of the index: 1, 2, 4 or 8.
    pub scale: u32,
    /// The bytes that are added.
    pub displacement: i64,
    /// The relocation of the displacement. The addend of a relative kind counts from the place itself, not
    /// from the field.
    pub reloc: Option<Reloc>,
}

impl Operand {
    /// What a register points to.
    pub fn at(base: Register) -> Operand {
        Operand { base, index: Register::None, scale: 1, displacement: 0, reloc: None }
    }

    /// The operand of an instruction. `reloc` is that of its displacement, counted from the instruction's
    /// begin.
    pub fn of(insn: &Instruction, reloc: Option<Reloc>) -> Result<Operand> {
        let relative = insn.is_ip_rel_memory_operand();
        if relative && reloc.is_none() {
            let place = format!("{:#x}", insn.ip());
            return refused(place, "an operand is relative to the code, but has no relocation");
        }
        let reloc = reloc.map(|mut reloc| {
            if reloc::relative(reloc.kind) {
                reloc.addend += insn.len() as i64 - reloc.offset as i64;
            }
            reloc
        });
        Ok(Operand {
            base: insn.memory_base(),
            index: insn.memory_index(),
            scale: insn.memory_index_scale(),
            displacement: if relative || reloc.is_some() { 0 } else { insn.memory_displacement64() as i64 },
            reloc,
        })
    }

    /// Whether its address depends on a register.
    pub fn uses(&self, register: Register) -> bool {
        self.base.full_register() == register || self.index.full_register() == register
    }

    /// `lea` of it, where the stack is `deeper` bytes deeper than at the instruction it is from.
    pub fn address(&self, register: Register, deeper: i16) -> Result<Op> {
        self.op(Code::Lea_r64_m, register, deeper)
    }

    /// `mov` of the 8 bytes in it, on a stack that is `deeper` bytes deeper.
    pub fn value(&self, register: Register, deeper: i16) -> Result<Op> {
        self.op(Code::Mov_r64_rm64, register, deeper)
    }

    fn op(&self, code: Code, register: Register, deeper: i16) -> Result<Op> {
        let mut lea = Instruction::default();
        lea.set_code(code);
        lea.set_op0_register(register);
        lea.set_op1_kind(OpKind::Memory);
        lea.set_memory_base(self.base);
        lea.set_memory_index(self.index);
        lea.set_memory_index_scale(self.scale);
        let below = if self.base == Register::RSP { i64::from(deeper) } else { 0 };
        let displacement = self.displacement.wrapping_add(below);
        let none = self.base == Register::None;
        let narrow = self.base.is_gpr32() || self.index.is_gpr32();
        let size = match (self.reloc, displacement, i8::try_from(displacement)) {
            (None, 0, _) if !none => 0,
            (None, _, Ok(_)) if !none => 1,
            // A relocation needs a field of four bytes, which is not shortened.
            _ if narrow => 4,
            _ => 8,
        };
        lea.set_memory_displ_size(size);
        lea.set_memory_displacement64(displacement as u64);
        let mut bytes = encode(&lea)?;
        let Some(old) = self.reloc else { return Ok(Op::Code(bytes, None)) };
        let at = self::displacement(&bytes)?;
        bytes[at..at + 4].fill(0);
        let mut moved = Reloc { offset: at as u64, ..old };
        moved.addend += match reloc::relative(old.kind) {
            true => at as i64 - bytes.len() as i64,
            false => below,
        };
        Ok(Op::Code(bytes, Some(moved)))
    }
}

/// Where the 32-bit displacement of an instruction is.
fn displacement(bytes: &[u8]) -> Result<usize> {
    let mut decoder = iced_x86::Decoder::new(64, bytes, iced_x86::DecoderOptions::NONE);
    let insn = decoder.decode();
    let offsets = decoder.get_constant_offsets(&insn);
    if offsets.displacement_size() != 4 {
        return refused("a patch", format!("`{insn}` has no room for an address"));
    }
    Ok(offsets.displacement_offset())
}

/// How the module's own code returns; new code returns the same way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returns {
    thunk: Option<usize>,
}

impl Returns {
    /// By the kernel's thunk, if the module's own code does.
    pub fn of(object: &Object) -> Returns {
        let thunk = object
            .symbols
            .iter()
            .position(|symbol| symbol.undefined() && symbol.name == tables::RETURN_THUNK);
        Returns { thunk: thunk.filter(|_| object.section(RETURN_SITES).is_some()) }
    }
}

/// New functions, which become a section of their own.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    returns: Returns,
    bytes: Vec<u8>,
    relocs: Vec<Reloc>,
    /// Offsets from which on the stack is so many bytes deeper than where a function begins.
    depths: Vec<(u64, i16)>,
    /// Offsets of jumps to the kernel's thunk for returns.
    sites: Vec<u64>,
    /// Offsets of instructions that may fault, and of where to go on then.
    faults: Vec<(u64, u64)>,
    /// Where functions begin and end, and their names.
    functions: Vec<(u64, u64, String)>,
}

impl Assembly {
    /// An assembly without functions.
    pub fn new(returns: Returns) -> Assembly {
        Assembly { returns, ..Assembly::default() }
    }

    /// Begins a function, and returns its offset; the one before ends here.
    pub fn function(&mut self, name: &str) -> u64 {
        self.end();
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0xcc);
        let at = self.bytes.len() as u64;
        self.functions.push((at, at, name.to_owned()));
        self.depths.push((at, 0));
        at
    }

    /// Appends instructions. Jumps by labels and faults belong to patches; here they have no meaning.
    pub fn add(&mut self, ops: impl IntoIterator<Item = Op>) {
        for op in ops {
            let at = self.bytes.len() as u64;
            match op {
                Op::Code(code, reloc) => {
                    self.relocs.extend(reloc.map(|reloc| Reloc { offset: at + reloc.offset, ..reloc }));
                    self.bytes.extend(code);
                }
                Op::Deeper(deeper) => self.depths.push((at, deeper)),
                Op::Jump(..) | Op::MayFault => debug_assert!(false, "{op:?} outside of a patch"),
            }
        }
    }

    /// Leaves room in front of the next function, where the kernel may put its counting of calls.
    pub fn room(&mut self) {
        self.end();
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0xcc);
        self.depths.push((self.bytes.len() as u64, 0));
        self.bytes.resize(self.bytes.len() + ALIGN, 0x90);
    }

    /// The offset of the next instruction.
    pub fn here(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a jump by a 32-bit distance, which [`land`](Self::land) fills in; returns the offset of its
    /// end.
    pub fn jump(&mut self, opcode: &[u8]) -> usize {
        self.bytes.extend_from_slice(opcode);
        self.bytes.extend([0; 4]);
        self.bytes.len()
    }

    /// Sets the target of a jump.
    pub fn land(&mut self, jump: usize, target: usize) {
        let distance = (target as i64 - jump as i64) as i32;
        self.bytes[jump - 4..jump].copy_from_slice(&distance.to_le_bytes());
    }

    /// Sets where to go on when an instruction faults.
    pub fn may_fault(&mut self, insn: usize, target: usize) {
        self.faults.push((insn as u64, target as u64));
    }

    /// Stops the processor from running on here, not even in advance.
    pub fn stop(&mut self) {
        self.bytes.push(0xcc);
    }

    /// Appends a return.
    pub fn ret(&mut self) {
        match self.returns.thunk {
            Some(thunk) => {
                self.sites.push(self.bytes.len() as u64);
                self.add([go(thunk, true)]);
            }
            None => self.bytes.push(0xc3),
        }
        self.stop();
    }

    fn end(&mut self) {
        if let Some((start, end, _)) = self.functions.last_mut()
            && start == end
        {
            *end = self.bytes.len() as u64;
        }
    }

    /// Fills a section with the code, and adds what the kernel has to know: symbols, stack frames, and how
    /// the code returns.
    pub fn fill(mut self, object: &mut Object, section: usize) {
        self.end();
        for (value, end, name) in self.functions {
            let info = object::elf::STT_FUNC;
            let index = SectionIndex::In(section);
            object.symbols.push(Symbol { name, index, value, size: end - value, info, other: 0 });
        }
        let symbol = object.symbol_of_section(section);
        if let Some(index) = object.section(RETURN_SITES).filter(|_| !self.sites.is_empty()) {
            let table = &mut object.sections[index];
            for site in self.sites {
                let offset = table.size();
                table.extend(&[0; 4]);
                table.relocs.push(Reloc { offset, kind: reloc::PC32, symbol, addend: site as i64 });
            }
        }
        let filled = &mut object.sections[section];
        filled.extend(&self.bytes);
        filled.relocs = self.relocs;
        orc::describe(object, section, &self.depths);
        add_faults(object, section, &self.faults);
    }

    /// Fills a new section with the code; returns its index.
    pub fn place(self, object: &mut Object, name: &str) -> usize {
        let section = code_section(object, name);
        self.fill(object, section);
        section
    }
}

/// Adds an empty section for code, and returns its index.
pub fn code_section(object: &mut Object, name: &str) -> usize {
    let flags = object::elf::SHF_ALLOC | object::elf::SHF_EXECINSTR;
    object.sections.push(Section::new(name, flags, Vec::new(), Vec::new()));
    object.sections.len() - 1
}

/// Adds the rows that the kernel looks up when an instruction of its own faults.
pub fn add_faults(object: &mut Object, code: usize, faults: &[(u64, u64)]) {
    if faults.is_empty() {
        return;
    }
    let symbol = object.symbol_of_section(code);
    let index = object.section("__ex_table").unwrap_or_else(|| {
        let table = Section::new("__ex_table", object::elf::SHF_ALLOC, Vec::new(), Vec::new());
        object.sections.push(Section { align: 4, ..table });
        object.sections.len() - 1
    });
    let section = &mut object.sections[index];
    for (from, to) in faults {
        let offset = section.size();
        section.extend(&[0; tables::EX_ROW as usize - 4]);
        section.extend(&EX_DEFAULT.to_le_bytes());
        for (at, place) in [(0, from), (4, to)] {
            let offset = offset + at;
            section.relocs.push(Reloc { offset, kind: reloc::PC32, symbol, addend: *place as i64 });
        }
    }
}
