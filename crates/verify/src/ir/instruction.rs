//! Functions, blocks and instructions.

use super::types::Type;
use std::rc::Rc;

/// A value as an instruction names it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The result of an instruction, or a parameter, by its index in the function.
    Register(u32),
    /// An integer constant, cut to 64 bits.
    Integer(u64),
    /// Zero of any type.
    Zero,
    /// Nothing in particular.
    Undefined,
    /// The address of a variable or function.
    Global(Rc<str>),
    /// A cast of a constant.
    Cast(Cast, Box<Operand>, Type),
    /// An address in a constant: the type, the pointer, the indices.
    Address(Type, Vec<Operand>),
    /// Fields or elements.
    Aggregate(Vec<Operand>),
    /// Bytes of a string.
    Text(Vec<u8>),
    /// What was not understood.
    Other,
}

/// A value with its type.
pub type Operand = (Type, Value);

/// A conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// Pointer to pointer, or the same bits.
    Bits,
    /// Zeros in front.
    Zero,
    /// The sign in front.
    Sign,
    /// The upper bits cut off.
    Cut,
    /// From or to a floating-point number.
    Float,
}

/// An operation on two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    UDiv,
    SDiv,
    URem,
    SRem,
    Shl,
    LShr,
    AShr,
    And,
    Or,
    Xor,
}

/// A comparison of two integers or pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Predicate {
    Eq,
    Ne,
    Ult,
    Ule,
    Ugt,
    Uge,
    Slt,
    Sle,
    Sgt,
    Sge,
}

/// What an instruction does.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Memory of the function: its type.
    Alloca(Type),
    /// Reads memory: the type, the address, whether volatile.
    Load(Type, Operand, bool),
    /// Writes memory: the value, the address, whether volatile.
    Store(Operand, Operand, bool),
    /// An address: the type that the first index counts, the pointer, the indices.
    Address(Type, Vec<Operand>),
    /// A conversion.
    Cast(Cast, Operand, Type),
    /// An operation on two integers.
    Binary(Binary, Operand, Value),
    /// A comparison.
    Compare(Predicate, Operand, Value),
    /// One of two values.
    Select(Value, Operand, Operand),
    /// The value of the edge that was taken: value and block.
    Phi(Type, Vec<(Value, u32)>),
    /// A call.
    Call(Call),
    /// A read and write of memory at once: the address.
    Atomic(Operand),
    /// A part of a value that inline assembly or an intrinsic function returns as a whole: any value.
    Part(Operand),
    /// Orders memory only.
    Nothing,
    /// What was not understood: the text.
    Unknown(String),
}

/// A call.
#[derive(Clone, Debug)]
pub struct Call {
    /// What is called.
    pub callee: Value,
    /// The type of the result.
    pub result: Type,
    /// The arguments.
    pub arguments: Vec<Operand>,
    /// Of each argument, whether the callee gets a copy of the structure that it points to.
    pub copies: Vec<bool>,
    /// Whether it is inline assembly.
    pub assembly: bool,
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// The register that it sets.
    pub result: Option<u32>,
    /// What it does.
    pub operation: Operation,
    /// The node of its source line.
    pub line: Option<u32>,
}

/// The end of a block.
#[derive(Clone, Debug)]
pub enum End {
    /// To another block.
    Jump(u32),
    /// To the first block if the value is not zero, else to the second.
    Branch(Value, u32, u32),
    /// By the value: its type, the block for all other values, and values with their blocks.
    Switch(Operand, u32, Vec<(u64, u32)>),
    /// To any of these blocks, which the engine cannot say.
    Any(Vec<u32>),
    /// Back to the caller.
    Return(Option<Operand>),
    /// Never reached, or never left.
    Stop,
}

/// A block.
#[derive(Clone, Debug)]
pub struct Block {
    /// The instructions but the last.
    pub instructions: Vec<Instruction>,
    /// The last.
    pub end: End,
    /// The node of the last one's source line.
    pub line: Option<u32>,
}

/// A function with a body.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The node of its source line.
    pub line: Option<u32>,
    /// The type of its result.
    pub result: Type,
    /// The types of its parameters; parameter N is register N.
    pub parameters: Vec<Type>,
    /// Whether other files see it.
    pub external: bool,
    /// The blocks; the first is the entry.
    pub blocks: Vec<Block>,
    /// Number of registers.
    pub registers: u32,
    /// Nodes of the local variables, by register.
    pub variables: Vec<(u32, u32)>,
}
