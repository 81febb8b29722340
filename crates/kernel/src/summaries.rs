//! What kernel functions do: the tables of `knowledge/` about memory, locks, DMA and reads, resolved for one kernel,
//! and the default for all other functions.

mod dma;
pub(crate) mod locks;

use guardrail_binfmt::KernelImage;
use guardrail_binfmt::btf::{Proto, Type};
use guardrail_knowledge::effect::{Class, Direction, Effect, Len, Ptr, Summary, SyncOp, Zeroed};
use guardrail_knowledge::table::{self, Clause, Kind};
use guardrail_trace::config::{Deref, ListCount, ListWalk};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Words of the text of a violation that are read: `ACTIVE_TEXT` of `active/core/domain.h`.
const VIOLATION_WORDS: u64 = 32;

/// A table row that this kernel has.
#[derive(Clone, Debug)]
pub struct Row {
    /// The effects of the function.
    pub summary: Arc<Summary>,
    /// Link-time address of the function.
    pub address: u64,
    /// How many arguments the effects use.
    pub args: u8,
    /// Values to be read through arguments at the function's first instruction.
    pub derefs: Vec<Deref>,
    /// Lists to be read through arguments.
    pub lists: Vec<ListWalk>,
    /// Whether calls are watched from all callers.
    pub everywhere: bool,
}

/// The table, resolved for one kernel.
#[derive(Clone, Debug, Default)]
pub struct SummaryTable {
    rows: BTreeMap<String, Row>,
    /// Functions of the table that the image lacks: modules may have them.
    elsewhere: BTreeMap<String, Row>,
    absent: Vec<String>,
}

impl SummaryTable {
    /// Resolves the table for an image.
    pub fn for_image(image: &KernelImage) -> SummaryTable {
        let mut table = SummaryTable::default();
        for entry in Kind::Memory.rows() {
            for name in &entry.names {
                let known = variants(image, name);
                for (name, address) in &known {
                    let row = resolve(&entry, image, name, *address);
                    table.rows.entry(name.clone()).or_insert(row);
                }
                if known.is_empty() {
                    table.extend_elsewhere(image, &entry, name);
                    table.absent.push((*name).to_owned());
                }
            }
        }
        for entry in [Kind::Locks, Kind::Dma, Kind::Reads].into_iter().flat_map(Kind::rows) {
            for name in &entry.names {
                let known = variants(image, name);
                for (name, address) in &known {
                    table.extend(image, &entry, name, *address);
                }
                if known.is_empty() {
                    table.extend_elsewhere(image, &entry, name);
                    table.absent.push((*name).to_owned());
                }
            }
        }
        table
    }

    /// Adds the effects of a row to what is known of a function.
    fn extend(&mut self, image: &KernelImage, entry: &table::Row<'_>, name: &str, address: u64) {
        let mut row = self.rows.remove(name).unwrap_or_else(|| Row {
            summary: by_name(image, name),
            address,
            args: 0,
            derefs: Vec::new(),
            lists: Vec::new(),
            everywhere: false,
        });
        let mut more = resolve_after(entry, image, name, address, row.derefs);
        more.lists.splice(0..0, row.lists);
        let mut summary = Arc::unwrap_or_clone(row.summary);
        summary.effects.extend(Arc::unwrap_or_clone(more.summary).effects);
        row = Row {
            summary: Arc::new(summary),
            args: row.args.max(more.args),
            everywhere: row.everywhere || more.everywhere,
            ..more
        };
        self.rows.insert(name.to_owned(), row);
    }

    /// Adds the effects of a row to a function of a module. Its parameters are known by their order. It is
    /// hooked only where the row itself asks for it.
    fn extend_elsewhere(&mut self, image: &KernelImage, entry: &table::Row<'_>, name: &str) {
        let more = Row { everywhere: entry.is_everywhere(), ..resolve(entry, image, name, 0) };
        let Some(known) = self.elsewhere.remove(name) else {
            self.elsewhere.insert(name.to_owned(), more);
            return;
        };
        let mut summary = Arc::unwrap_or_clone(known.summary);
        summary.effects.extend(Arc::unwrap_or_clone(more.summary).effects);
        let row = Row {
            summary: Arc::new(summary),
            args: known.args.max(more.args),
            everywhere: known.everywhere || more.everywhere,
            ..known
        };
        self.elsewhere.insert(name.to_owned(), row);
    }

    /// What the table states about a function that is not in the image but in a module.
    pub fn elsewhere(&self, name: &str) -> Option<Arc<Summary>> {
        self.elsewhere.get(name).map(|row| Arc::clone(&row.summary))
    }

    /// The row of a function that is not in the image; `None` if it has none.
    pub fn elsewhere_row(&self, name: &str) -> Option<&Row> {
        self.elsewhere.get(name)
    }

    /// All rows of functions that are not in the image, by name.
    pub fn elsewhere_rows(&self) -> impl Iterator<Item = (&str, &Row)> {
        self.elsewhere.iter().map(|(name, row)| (name.as_str(), row))
    }

    /// The row of a function; `None` if it has none.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.get(name)
    }

    /// All rows, by name.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &Row)> {
        self.rows.iter().map(|(name, row)| (name.as_str(), row))
    }

    /// Functions of the table that this kernel lacks.
    pub fn absent(&self) -> &[String] {
        &self.absent
    }

    /// What a function does: its row, or what its prototype allows.
    pub fn summary(&self, image: &KernelImage, name: &str) -> Arc<Summary> {
        self.rows.get(name).map_or_else(|| by_name(image, name), |row| Arc::clone(&row.summary))
    }
}

/// What the prototype of a function allows; anything if it has no prototype.
fn by_name(image: &KernelImage, name: &str) -> Arc<Summary> {
    Arc::new(match image.btf().func_proto(name) {
        Some(proto) => by_prototype(name, &proto),
        None => Summary::unknown(name),
    })
}

/// Address of a function in the kernel's text.
pub(crate) fn function(image: &KernelImage, name: &str) -> Option<u64> {
    image.address_of(name).filter(|&address| image.is_text(address))
}

/// The default: a call may define what its non-const pointers point to, and keep every pointer.
fn by_prototype(name: &str, proto: &Proto) -> Summary {
    let mut effects = Vec::new();
    for (i, param) in proto.params.iter().enumerate() {
        let (Some(arg), Type::Ptr(pointee)) = (param.register, &param.ty) else { continue };
        if pointee.is_func {
            continue;
        }
        if !pointee.is_const {
            // A buffer is followed by its length.
            let length = proto.params.get(i + 1).filter(|next| is_length(&next.name, &next.ty));
            let single = pointee.is_void || pointee.size == Some(1);
            let len = match (length.and_then(|next| next.register), pointee.size) {
                (Some(next), _) if single => Len::Arg(next),
                (None, Some(size)) if size > 1 => Len::Const(size),
                (Some(_), Some(size)) if size > 8 => Len::Const(size),
                _ => Len::Rest,
            };
            effects.push(Effect::Define { ptr: Ptr::Arg(arg), len });
        }
        effects.push(Effect::Escape { arg });
    }
    Summary { name: name.to_owned(), effects }
}

fn is_length(name: &str, ty: &Type) -> bool {
    matches!(ty, Type::Int { bits, .. } if *bits >= 16)
        && ["len", "size", "count", "n", "nbytes", "bytes", "length", "bufsize", "buflen"]
            .iter()
            .any(|word| name == *word || name.ends_with(&format!("_{word}")) || name.ends_with("len"))
}

/// The functions of the kernel that a name stands for, with their link-time addresses: itself, and since 6.10
/// `_noprof`.
pub(crate) fn variants(image: &KernelImage, name: &str) -> Vec<(String, u64)> {
    let names = [name.to_owned(), format!("{name}_noprof")];
    names.into_iter().filter_map(|name| function(image, &name).map(|address| (name, address))).collect()
}

fn resolve(entry: &table::Row<'_>, image: &KernelImage, name: &str, address: u64) -> Row {
    resolve_after(entry, image, name, address, Vec::new())
}

/// Resolves a row for a function that already has values to read.
fn resolve_after(
    entry: &table::Row<'_>,
    image: &KernelImage,
    name: &str,
    address: u64,
    derefs: Vec<Deref>,
) -> Row {
    let narrow = image.btf().func_proto(name).is_some_and(|proto| locks::is_narrow(&proto.result));
    let places = places(image, name, &entry.params);
    let mut resolver = Resolver { image, places, derefs, lists: Vec::new(), narrow };
    let effects: Vec<Effect> = entry.effects.iter().filter_map(|effect| resolver.effect(effect)).collect();
    let everywhere = entry.is_everywhere()
        || effects.iter().any(|effect| {
            matches!(
                effect,
                Effect::Alloc { .. }
                    | Effect::Free { .. }
                    | Effect::AllocList { .. }
                    | Effect::FreeList { .. }
                    | Effect::Alias { .. }
                    | Effect::TakeOver { .. }
                    | Effect::CreateCache { .. }
                    | Effect::Grow { .. }
                    | Effect::Sync(SyncOp::Hold { .. })
            )
        });
    let args = resolver.places.iter().map(|(_, place)| place + 1).max().unwrap_or(0).min(6);
    let Resolver { derefs, lists, .. } = resolver;
    let summary = Arc::new(Summary { name: name.to_owned(), effects });
    Row { summary, address, args, derefs, lists, everywhere }
}

/// The argument register of each of these parameters of a function: by their names if the kernel's types know
/// all of them, else by their order.
pub(crate) fn places<'a>(image: &KernelImage, name: &str, params: &[&'a str]) -> Vec<(&'a str, u8)> {
    let proto = image.btf().func_proto(name);
    let by_name: Option<Vec<(&str, u8)>> = proto.and_then(|proto| {
        params
            .iter()
            .map(|&wanted| {
                let param = proto.params.iter().find(|param| param.name == wanted)?;
                Some((wanted, param.register?))
            })
            .collect()
    });
    by_name.unwrap_or_else(|| params.iter().copied().zip(0..6).collect())
}

/// Turns words into effects.
struct Resolver<'a, 'b> {
    image: &'b KernelImage,
    places: Vec<(&'a str, u8)>,
    derefs: Vec<Deref>,
    lists: Vec<ListWalk>,
    /// Whether only the lowest byte of the result is defined.
    narrow: bool,
}

impl Resolver<'_, '_> {
    fn arg(&self, name: &str) -> Option<u8> {
        self.places.iter().find(|(known, _)| *known == name).map(|(_, place)| *place)
    }

    fn ptr(&self, text: &str) -> Option<Ptr> {
        match text.strip_prefix("page(").and_then(|rest| rest.strip_suffix(')')) {
            Some(inner) => match inner.split_once(',') {
                Some((page, offset)) => Some(Ptr::Page(self.arg(page)?, Some(self.arg(offset)?))),
                None => Some(Ptr::Page(self.arg(inner)?, None)),
            },
            None => Some(Ptr::Arg(self.arg(text)?)),
        }
    }

    fn len(&mut self, text: &str) -> Option<Len> {
        if let Ok(number) = text.parse() {
            return Some(Len::Const(number));
        }
        match text {
            "rest" => return Some(Len::Rest),
            "found" => return Some(Len::Found(None)),
            _ => {}
        }
        if let Some(rest) = text.strip_prefix("result") {
            let (extra, bound) = rest.split_once('/').map_or((rest, None), |(extra, arg)| (extra, Some(arg)));
            let bound = match bound {
                Some(name) => Some(self.arg(name)?),
                None => None,
            };
            return Some(Len::Result { extra: extra.trim_start_matches('+').parse().unwrap_or(0), bound });
        }
        if let Some((number, bound)) = text.split_once('/') {
            let bound = self.arg(bound)?;
            return Some(if number == "found" {
                Len::Found(Some(bound))
            } else {
                Len::AtMost(number.parse().ok()?, bound)
            });
        }
        if let Some(name) = text.strip_prefix("sizeof(").and_then(|rest| rest.strip_suffix(')')) {
            let btf = self.image.btf();
            return Some(Len::Const(btf.size_of(btf.struct_named(name)?)?));
        }
        if let Some(name) = text.strip_prefix("order(").and_then(|rest| rest.strip_suffix(')')) {
            return Some(Len::Order(self.arg(name)?));
        }
        if let Some((arg, member)) = text.split_once("->") {
            let (structure, member) = member.split_once('.')?;
            let btf = self.image.btf();
            let (offset, ty) = btf.member(btf.struct_named(structure)?, member)?;
            let size = btf.size_of(ty).filter(|size| matches!(size, 1 | 2 | 4 | 8))? as u8;
            self.derefs.push(Deref { arg: self.arg(arg)?, offset, size });
            return Some(Len::Deref(self.derefs.len() as u8 - 1));
        }
        if let Some((a, b)) = text.split_once('*') {
            return Some(Len::Product(self.arg(a)?, self.arg(b)?));
        }
        Some(Len::Arg(self.arg(text)?))
    }

    fn zeroed(&self, clause: &Clause<'_>) -> Option<Zeroed> {
        Some(match clause.option("zero") {
            Some("yes") => Zeroed::Yes,
            Some(arg) => Zeroed::Gfp(self.arg(arg)?),
            None => Zeroed::No,
        })
    }

    /// Adds an array of pointers to what the hook reads, at the call or at the return.
    fn pointers(&mut self, array: &str, count: &str, at_entry: bool) -> Option<()> {
        let (arg, count) = (self.arg(array)?, ListCount::Arg(self.arg(count)?));
        let (through, chain, fields) = (None, None, vec![(0, 8)]);
        self.lists.push(ListWalk {
            arg,
            through,
            count,
            stride: 8,
            fields,
            chain,
            at_entry,
            at_return: !at_entry,
        });
        Some(())
    }

    fn effect(&mut self, clause: &Clause<'_>) -> Option<Effect> {
        let words = &clause.words;
        let arg_option = |this: &Self, name: &str| clause.option(name).and_then(|arg| this.arg(arg));
        let word = |i: usize| clause.word(i);
        Some(match word(0)? {
            "alloc" => Effect::Alloc {
                class: Class::named(word(1)?)?,
                size: self.len(word(2)?).unwrap_or(Len::Rest),
                zeroed: self.zeroed(clause)?,
                page: words.contains(&"page") && words[3..].contains(&"page"),
                cache: arg_option(self, "cache"),
                realloc: arg_option(self, "realloc"),
            },
            "free" => Effect::Free {
                ptr: self.ptr(word(1)?)?,
                classes: word(2)?.split('|').filter_map(Class::named).collect(),
                cache: arg_option(self, "cache"),
            },
            "allocs" => {
                let (class, size) = (Class::named(word(3)?)?, self.len(word(4)?)?);
                let zeroed = self.zeroed(clause)?;
                self.pointers(word(1)?, word(2)?, false)?;
                Effect::AllocList { class, size, zeroed, cache: arg_option(self, "cache") }
            }
            "frees" => {
                self.pointers(word(1)?, word(2)?, true)?;
                let classes = word(3)?.split('|').filter_map(Class::named).collect();
                Effect::FreeList { classes, cache: arg_option(self, "cache") }
            }
            "alias" => {
                self.pointers(word(1)?, word(2)?, true)?;
                Effect::Alias { count: self.arg(word(2)?)? }
            }
            "take" => Effect::TakeOver { ptr: self.ptr(word(1)?)? },
            "cache" => Effect::CreateCache { ctor: self.len(word(1)?)?, flags: self.len(word(2)?)? },
            "define" => Effect::Define { ptr: self.ptr(word(1)?)?, len: self.len(word(2)?)? },
            "copy" => {
                Effect::Copy { dst: self.ptr(word(1)?)?, src: self.ptr(word(2)?)?, len: self.len(word(3)?)? }
            }
            "read" => Effect::Read { ptr: self.ptr(word(1)?)?, len: self.len(word(2)?)? },
            "touser" => Effect::ToUser { src: self.ptr(word(1)?)?, len: self.len(word(2)?)? },
            "putuser" => Effect::PutUser { size: word(1)?.parse().ok()? },
            "output" => Effect::Output {
                value: self.arg(word(1)?)?,
                size: word(2)?.parse().ok()?,
                register: word(3).and_then(|name| self.arg(name)),
            },
            "input" => Effect::Input { size: word(1)?.parse().ok()?, register: self.arg(word(2)?)? },
            "todevice" => Effect::ToDevice {
                src: self.ptr(word(1)?)?,
                len: self.len(word(2)?)?,
                unit: word(3)?.parse().ok()?,
            },
            "dmamap" => Effect::DmaMap {
                ptr: self.ptr(word(1)?)?,
                len: self.len(word(2)?)?,
                direction: match word(3)? {
                    "from" => Direction::FromDevice,
                    arg => Direction::Arg(self.arg(arg)?),
                },
            },
            "violation" => {
                let [rule, stack, text, main] = [1, 2, 3, 4].map(|i| word(i).and_then(|name| self.arg(name)));
                let text = text?;
                let words = (0..VIOLATION_WORDS).map(|i| Deref { arg: text, offset: 8 * i, size: 8 });
                self.derefs.extend(words);
                Effect::Violation { rule: rule?, stack: stack?, main: main? }
            }
            "grow" => Effect::Grow { ptr: self.ptr(word(1)?)? },
            "escape" => Effect::Escape { arg: self.arg(word(1)?)? },
            "format" => Effect::Format { format: self.arg(word(1)?)? },
            _ => match self.locks(words) {
                Some(op) => Effect::Sync(op),
                None => Effect::Dma(self.dma(words)?),
            },
        })
    }
}
