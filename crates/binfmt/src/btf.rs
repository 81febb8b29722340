//! BTF: the types of a kernel or a module, in compact form.

mod fields;
mod query;
#[doc(hidden)]
pub mod testing;

pub use query::{Param, Pointee, Proto, Type};

use crate::bytes::{c_str, slice, u16_at, u32_at};
use crate::error::KernelError;
use std::sync::Arc;

/// How deep chains of typedefs, qualifiers, arrays and nested structs are followed.
const MAX_DEPTH: u32 = 64;

/// Number of a type; zero is `void`. The types of a module continue the numbers of the kernel's.
pub type TypeId = u32;

/// What a type is, by its number in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    Int = 1,
    Ptr = 2,
    Array = 3,
    Struct = 4,
    Union = 5,
    Enum = 6,
    Fwd = 7,
    Typedef = 8,
    Volatile = 9,
    Const = 10,
    Restrict = 11,
    Func = 12,
    FuncProto = 13,
    Var = 14,
    DataSec = 15,
    Float = 16,
    DeclTag = 17,
    TypeTag = 18,
    Enum64 = 19,
}

impl Kind {
    fn from_bits(bits: u32) -> Option<Kind> {
        use Kind::*;
        const ALL: [Kind; 19] = [
            Int, Ptr, Array, Struct, Union, Enum, Fwd, Typedef, Volatile, Const, Restrict, Func, FuncProto,
            Var, DataSec, Float, DeclTag, TypeTag, Enum64,
        ];
        ALL.get((bits as usize).checked_sub(1)?).copied()
    }

    /// Bytes that follow the common header, for `vlen` items.
    fn extra(self, vlen: usize) -> usize {
        match self {
            Kind::Int | Kind::Var | Kind::DeclTag => 4,
            Kind::Array => 12,
            Kind::Struct | Kind::Union | Kind::DataSec | Kind::Enum64 => vlen * 12,
            Kind::Enum | Kind::FuncProto => vlen * 8,
            _ => 0,
        }
    }
}

/// The parsed types. Those of a module continue the numbers and strings of their base.
#[derive(Debug)]
pub struct Btf {
    base: Option<Arc<Btf>>,
    types: Vec<u8>,
    strings: Vec<u8>,
    /// Offset of each type in `types`; the first has the number `first_id`.
    offsets: Vec<u32>,
    first_id: TypeId,
    first_string: u32,
    /// Types that have a name, sorted by name and then number.
    by_name: Vec<TypeId>,
}

/// A type's common header, and where its other bytes are.
#[derive(Clone, Copy)]
pub(crate) struct RawType<'a> {
    pub kind: Kind,
    /// The kind flag: struct members carry bitfield sizes, enumerators are signed, a forward is a union.
    pub flag: bool,
    pub name: u32,
    /// Size or type number, depending on the kind.
    pub value: u32,
    pub extra: &'a [u8],
}

impl Btf {
    /// Parses a `.BTF` section. For a module's section, `base` is the kernel's BTF.
    pub fn parse(data: &[u8], base: Option<Arc<Btf>>) -> Result<Btf, KernelError> {
        let damaged = |detail: &str| KernelError::damaged("the type information (BTF)", detail);
        if u16_at(data, 0) != Some(0xeb9f) {
            return Err(damaged("it does not begin with BTF's magic number"));
        }
        let word = |at| u32_at(data, at).ok_or_else(|| damaged("its header is not whole"));
        let header = u64::from(word(4)?);
        let section = |offset: u32, len: u32| {
            slice(data, header + u64::from(offset), u64::from(len))
                .ok_or_else(|| damaged("a part lies beyond its end"))
        };
        let types = section(word(8)?, word(12)?)?;
        let strings = section(word(16)?, word(20)?)?;
        let mut btf = Btf {
            first_id: base.as_ref().map_or(1, |b| b.end_id()),
            first_string: base.as_ref().map_or(0, |b| b.first_string.saturating_add(b.strings.len() as u32)),
            base,
            types: types.to_vec(),
            strings: strings.to_vec(),
            offsets: Vec::new(),
            by_name: Vec::new(),
        };
        let mut at = 0;
        while at < types.len() {
            let (kind, vlen) = header_at(types, at).ok_or_else(|| {
                damaged(&format!("type {} is cut short or of an unknown kind", btf.end_id()))
            })?;
            let next = at + 12 + kind.extra(vlen);
            if next > types.len() {
                return Err(damaged(&format!("type {} is cut short", btf.end_id())));
            }
            btf.offsets.push(at as u32);
            at = next;
        }
        btf.index();
        Ok(btf)
    }

    fn index(&mut self) {
        let mut named: Vec<(&[u8], TypeId)> = (self.first_id..self.end_id())
            .filter_map(|id| {
                let raw = self.raw(id)?;
                if matches!(raw.kind, Kind::Var | Kind::DeclTag | Kind::TypeTag) || raw.name == 0 {
                    return None;
                }
                Some((self.string(raw.name)?, id))
            })
            .collect();
        named.sort_unstable();
        self.by_name = named.into_iter().map(|(_, id)| id).collect();
    }

    /// One more than the largest type number.
    pub fn end_id(&self) -> TypeId {
        self.first_id.saturating_add(self.offsets.len() as u32)
    }

    pub(crate) fn raw(&self, id: TypeId) -> Option<RawType<'_>> {
        if id < self.first_id {
            return self.base.as_ref()?.raw(id);
        }
        let at = *self.offsets.get((id - self.first_id) as usize)? as usize;
        let (kind, vlen) = header_at(&self.types, at)?;
        Some(RawType {
            kind,
            flag: u32_at(&self.types, at + 4)? >> 31 != 0,
            name: u32_at(&self.types, at)?,
            value: u32_at(&self.types, at + 8)?,
            extra: self.types.get(at + 12..at + 12 + kind.extra(vlen))?,
        })
    }

    pub(crate) fn string(&self, offset: u32) -> Option<&[u8]> {
        if offset < self.first_string {
            return self.base.as_ref()?.string(offset);
        }
        c_str(&self.strings, (offset - self.first_string) as usize)
    }

    pub(crate) fn name_of(&self, raw: RawType<'_>) -> &str {
        self.string(raw.name).and_then(|s| std::str::from_utf8(s).ok()).unwrap_or("")
    }

    /// All types with this name; a module's own stand before its base's.
    pub(crate) fn named<'a>(&'a self, name: &'a str) -> Box<dyn Iterator<Item = TypeId> + 'a> {
        let key = |id: TypeId| self.raw(id).and_then(|raw| self.string(raw.name)).unwrap_or(b"");
        let start = self.by_name.partition_point(|&id| key(id) < name.as_bytes());
        let own = self.by_name[start..].iter().copied().take_while(move |&id| key(id) == name.as_bytes());
        match &self.base {
            Some(base) => Box::new(own.chain(base.named(name))),
            None => Box::new(own),
        }
    }
}

/// Kind and number of items of the type at an offset. Older versions leave some bits zero; they are read as
/// the wider fields of newer ones.
fn header_at(types: &[u8], at: usize) -> Option<(Kind, usize)> {
    let info = u32_at(types, at + 4)?;
    u32_at(types, at + 8)?;
    Some((Kind::from_bits(info >> 24 & 0x7f)?, (info & 0xff_ffff) as usize))
}

#[cfg(test)]
pub(crate) mod tests;
