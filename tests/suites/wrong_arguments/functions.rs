//! Which functions are called, and with which arguments. A kernel's types say it, and its list of exported symbols.

use guardrail_binfmt::btf::{Btf, Param, Proto, Type};
use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_kernel::isolation::Isolation;
use guardrail_vm::kernels::{self, Kernel};
use guardrail_vm::modules::Modules;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use libtest_mimic::Failed;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most words of arguments that the module passes (`WORDS` of `wrong.h`).
const MOST: usize = 16;

/// Functions that are not called, with the reason.
const EXCLUDED: [(&str, &str); 6] = [
    ("panic", "it ends the kernel, as it has to"),
    ("emergency_restart", "it restarts the machine"),
    ("kernel_halt", "it halts the machine"),
    ("kernel_power_off", "it turns the machine off"),
    ("kernel_restart", "it restarts the machine"),
    ("orderly_poweroff", "it turns the machine off"),
];

/// What a word of the arguments is (`enum kind` of `wrong.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No pointer.
    Number,
    /// Flags of an allocation.
    Flags,
    /// A pointer to memory.
    Pointer,
    /// A pointer to a string that is only read.
    Text,
    /// A pointer to a function.
    Code,
}

/// How a pointer is wrong (`enum wrongness` of `wrong.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrongness {
    /// None is: the functions are called as a good module might.
    None,
    /// An address that no page table can have.
    Wild,
    /// The kernel's half, where nothing is mapped.
    Unmapped,
    /// An object of the kernel's.
    Kernel,
    /// Another domain's memory.
    Other,
    /// The module's own memory, but eight bytes of it.
    Short,
    /// Memory that was the module's.
    Freed,
}

impl Wrongness {
    /// All that are wrong.
    const ALL: [Wrongness; 6] = [
        Wrongness::Wild,
        Wrongness::Unmapped,
        Wrongness::Kernel,
        Wrongness::Other,
        Wrongness::Short,
        Wrongness::Freed,
    ];

    /// The word for it in lists and results.
    pub fn word(self) -> &'static str {
        match self {
            Wrongness::None => "plausible",
            Wrongness::Wild => "wild",
            Wrongness::Unmapped => "unmapped",
            Wrongness::Kernel => "kernel's",
            Wrongness::Other => "another's",
            Wrongness::Short => "short",
            Wrongness::Freed => "freed",
        }
    }
}

/// A word of a function's arguments.
#[derive(Clone, Debug)]
pub struct Word {
    /// What it is.
    pub kind: Kind,
    /// The structure that it points to.
    pub structure: Option<String>,
}

/// A function that a module can call.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The words of its arguments. A large result adds one in front.
    pub words: Vec<Word>,
    /// Whether more may follow.
    pub variadic: bool,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The function's place in the list.
    pub function: usize,
    /// The word that is wrong, or the number of words.
    pub argument: usize,
    /// How it is wrong.
    pub wrongness: Wrongness,
}

impl Call {
    /// The number for the module.
    pub fn code(&self) -> usize {
        self.function * 1000 + self.argument * 10 + self.wrongness as usize
    }
}

/// The functions of a kernel that the border has a row for, and that modules can call, with the namespaces of their symbols.
pub fn functions(packages: &Packages, kernel: &Kernel) -> Result<(Vec<Function>, Vec<String>), Failed> {
    let image = KernelImage::open(&kernel.vmlinuz)?;
    let isolation = Isolation::built_in(vec![Arc::clone(image.btf())])?;
    let exports = std::fs::read_to_string(kernels::headers_tree(packages, kernel)?.join("Module.symvers"))?;
    let modules = Modules::of(kernel, &Parser::here())?;
    let mut types: BTreeMap<&str, Option<Arc<Btf>>> =
        BTreeMap::from([("vmlinux", Some(Arc::clone(image.btf())))]);
    let (mut functions, mut namespaces) = (Vec::new(), Vec::new());
    for line in exports.lines() {
        let mut fields = line.split('\t').skip(1);
        let (Some(name), Some(provider)) = (fields.next(), fields.next()) else { continue };
        if isolation.function(name).is_none() || EXCLUDED.iter().any(|(excluded, _)| *excluded == name) {
            continue;
        }
        let known = types.entry(provider).or_insert_with(|| types_of(&modules, provider, &image));
        let Some(function) = known.as_ref().and_then(|btf| function(name, &btf.func_proto(name)?)) else {
            continue;
        };
        functions.push(function);
        namespaces.extend(fields.nth(1).filter(|namespace| !namespace.is_empty()).map(str::to_owned));
    }
    functions.sort_by(|a, b| a.name.cmp(&b.name));
    namespaces.sort();
    namespaces.dedup();
    Ok((functions, namespaces))
}

/// The types of a module, by its path in the list of symbols.
fn types_of(modules: &Modules, provider: &str, image: &KernelImage) -> Option<Arc<Btf>> {
    let plan = modules.plan(provider.rsplit('/').next()?).ok()?;
    let module = ModuleImage::parse(&plan.driver.name, plan.driver.bytes).ok()?;
    Some(Arc::new(Btf::parse(module.btf_bytes()?, Some(Arc::clone(image.btf()))).ok()?))
}

/// A function by its prototype; `None` where its arguments are no words, or no pointers.
fn function(name: &str, proto: &Proto) -> Option<Function> {
    let mut words = Vec::new();
    if matches!(proto.result, Type::Aggregate { size } if size > 16) {
        words.push(Word { kind: Kind::Pointer, structure: None });
    }
    for param in &proto.params {
        match &param.ty {
            Type::Aggregate { size: 1..=8 } | Type::Int { bits: 0..=64, .. } | Type::Ptr(_) => {
                words.push(word(param))
            }
            Type::Aggregate { size: 9..=16 } | Type::Int { .. } if param.register.is_some() => {
                words.extend([word(param), word(param)]);
            }
            _ => return None,
        }
    }
    let function = Function { name: name.to_owned(), words, variadic: proto.variadic };
    let pointers = function.words.iter().any(|word| !matches!(word.kind, Kind::Number | Kind::Flags));
    (pointers && function.words.len() <= MOST).then_some(function)
}

fn word(param: &Param) -> Word {
    let (kind, structure) = match &param.ty {
        Type::Ptr(pointee) if pointee.is_func => (Kind::Code, None),
        Type::Ptr(pointee) if pointee.is_const && pointee.size == Some(1) && !pointee.is_void => {
            (Kind::Text, None)
        }
        Type::Ptr(pointee) => (Kind::Pointer, pointee.struct_name.clone()),
        _ if param.name.starts_with("gfp") => (Kind::Flags, None),
        _ => (Kind::Number, None),
    };
    Word { kind, structure }
}

/// Each function with no argument wrong, and then with each pointer wrong in each way.
pub fn calls(functions: &[Function]) -> Vec<Call> {
    let mut calls = Vec::new();
    for (number, function) in functions.iter().enumerate() {
        calls.push(Call { function: number, argument: function.words.len(), wrongness: Wrongness::None });
        for (argument, word) in function.words.iter().enumerate() {
            // Both kinds of addresses without memory behind take turns.
            let other = if number % 2 == 0 { Wrongness::Unmapped } else { Wrongness::Wild };
            let fits = |way: &Wrongness| match word.kind {
                Kind::Number | Kind::Flags => false,
                Kind::Code => *way != Wrongness::Short && *way != other,
                Kind::Pointer | Kind::Text => *way != other,
            };
            let ways = Wrongness::ALL.into_iter().filter(fits);
            calls.extend(ways.map(|wrongness| Call { function: number, argument, wrongness }));
        }
    }
    calls
}

/// Whether a word says how an argument is wrong.
pub fn is_wrongness(word: &str) -> bool {
    word == Wrongness::None.word() || Wrongness::ALL.iter().any(|way| way.word() == word)
}
