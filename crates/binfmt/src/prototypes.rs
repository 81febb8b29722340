//! Prototypes of a module's functions and constants of its enumerations, from its DWARF. A module that is
//! built where no `vmlinux` is at hand has no BTF of its own.

use crate::btf::{Pointee, Proto, Type};
use crate::lines::{Bytes, dwarf_of};
use crate::module::ModuleImage;
use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, Unit, UnitOffset};
use std::collections::BTreeMap;

/// Prototypes by the names of their functions.
pub type Prototypes = BTreeMap<String, Proto>;

/// Most names and qualifiers of a type.
const MAX_DEPTH: usize = 32;
/// Most functions of a module that are read; then most parameters of one function.
const MAX_FUNCTIONS: usize = 1 << 20;
const MAX_PARAMS: usize = 64;

type Die<'a> = DebuggingInformationEntry<'a, 'a, Bytes, usize>;

/// The prototypes of a module, as far as its DWARF can be read. It leaves out names with several prototypes.
pub fn of_module(module: &ModuleImage) -> Prototypes {
    let mut found: BTreeMap<String, Option<Proto>> = BTreeMap::new();
    let Some(dwarf) = dwarf_of(module) else { return Prototypes::new() };
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        // What could be read before a mistake counts.
        let _ = Reader { dwarf: &dwarf, unit: &unit }.functions(&mut found);
    }
    found.into_iter().filter_map(|(name, proto)| Some((name, proto?))).collect()
}

/// The prototypes of the functions that a module exports.
pub fn exported_of(module: &ModuleImage) -> Prototypes {
    let symbols = module.symbols().iter().filter(|symbol| !symbol.undefined);
    let names = symbols.filter_map(|symbol| module.symbol_name(symbol).strip_prefix("__ksymtab_"));
    let mut all = of_module(module);
    names.filter_map(|name| all.remove_entry(name)).collect()
}

/// The constants of an enumeration that a module uses, by its DWARF; empty where none is found.
pub fn enumeration(module: &ModuleImage, name: &str) -> BTreeMap<String, u64> {
    let Some(dwarf) = dwarf_of(module) else { return BTreeMap::new() };
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        match (Reader { dwarf: &dwarf, unit: &unit }).constants(name) {
            Ok(found) if !found.is_empty() => return found,
            _ => {}
        }
    }
    BTreeMap::new()
}

struct Reader<'a> {
    dwarf: &'a Dwarf<Bytes>,
    unit: &'a Unit<Bytes>,
}

impl Reader<'_> {
    fn functions(&self, found: &mut BTreeMap<String, Option<Proto>>) -> gimli::Result<()> {
        let mut tree = self.unit.entries_tree(None)?;
        let mut children = tree.root()?.children();
        while let Some(node) = children.next()? {
            let die = node.entry();
            if die.tag() != gimli::DW_TAG_subprogram || found.len() >= MAX_FUNCTIONS {
                continue;
            }
            // Instances of inlined functions have no name of their own.
            let Some(name) = self.name(die) else { continue };
            let (result, names) = (self.type_of(die)?, self.names_of(die)?);
            let (mut params, mut variadic) = (Vec::new(), false);
            let mut inner = node.children();
            while let Some(param) = inner.next()? {
                let param = param.entry();
                match param.tag() {
                    gimli::DW_TAG_formal_parameter if params.len() < MAX_PARAMS => {
                        params.push((self.name(param).unwrap_or_default(), self.type_of(param)?));
                    }
                    gimli::DW_TAG_unspecified_parameters => variadic = true,
                    _ => {}
                }
            }
            let proto = Proto::new(params, variadic, result).naming_result(names);
            let known = found.entry(name).or_insert_with(|| Some(proto.clone()));
            if known.as_ref() != Some(&proto) {
                *known = None;
            }
        }
        Ok(())
    }

    /// The constants of an enumeration.
    fn constants(&self, name: &str) -> gimli::Result<BTreeMap<String, u64>> {
        let mut found = BTreeMap::new();
        let mut tree = self.unit.entries_tree(None)?;
        let mut children = tree.root()?.children();
        while let Some(node) = children.next()? {
            let die = node.entry();
            if die.tag() != gimli::DW_TAG_enumeration_type || self.name(die).as_deref() != Some(name) {
                continue;
            }
            let mut inner = node.children();
            while let Some(constant) = inner.next()? {
                let value = constant.entry().attr_value(gimli::DW_AT_const_value)?;
                let value = value.and_then(|value| value.udata_value());
                found.extend(self.name(constant.entry()).zip(value));
            }
        }
        Ok(found)
    }

    fn name(&self, die: &Die<'_>) -> Option<String> {
        let name = self.dwarf.attr_string(self.unit, die.attr_value(gimli::DW_AT_name).ok()??).ok()?;
        Some(String::from_utf8_lossy(name.bytes()).into_owned())
    }

    /// Where the type of what a DWARF entry describes is described; `None` for `void`.
    fn behind(&self, die: &Die<'_>) -> gimli::Result<Option<UnitOffset>> {
        Ok(match die.attr_value(gimli::DW_AT_type)? {
            Some(AttributeValue::UnitRef(offset)) => Some(offset),
            Some(AttributeValue::DebugInfoRef(offset)) => offset.to_unit_offset(&self.unit.header),
            _ => None,
        })
    }

    fn size(die: &Die<'_>) -> gimli::Result<Option<u64>> {
        Ok(die.attr_value(gimli::DW_AT_byte_size)?.and_then(|size| size.udata_value()))
    }

    fn type_of(&self, die: &Die<'_>) -> gimli::Result<Type> {
        let mut next = self.behind(die)?;
        for _ in 0..MAX_DEPTH {
            let Some(offset) = next else { return Ok(Type::Void) };
            let ty = self.unit.entry(offset)?;
            let size = Self::size(&ty)?.unwrap_or(0);
            let bits = u32::try_from(size.saturating_mul(8)).unwrap_or(0);
            return Ok(match ty.tag() {
                tag if is_modifier(tag) => {
                    next = self.behind(&ty)?;
                    continue;
                }
                gimli::DW_TAG_base_type => match ty.attr_value(gimli::DW_AT_encoding)? {
                    Some(AttributeValue::Encoding(gimli::DW_ATE_float)) => Type::Other,
                    Some(AttributeValue::Encoding(encoding)) => Type::Int {
                        bits,
                        signed: matches!(encoding, gimli::DW_ATE_signed | gimli::DW_ATE_signed_char),
                    },
                    _ => Type::Other,
                },
                gimli::DW_TAG_enumeration_type => Type::Int { bits, signed: false },
                gimli::DW_TAG_pointer_type => Type::Ptr(self.pointee(&ty)?),
                gimli::DW_TAG_structure_type | gimli::DW_TAG_union_type => Type::Aggregate { size },
                _ => Type::Other,
            });
        }
        Ok(Type::Other)
    }

    /// The names of typedefs on the way to the type of what a DWARF entry describes, and that of an enumeration at
    /// its end.
    fn names_of(&self, die: &Die<'_>) -> gimli::Result<Vec<String>> {
        let (mut names, mut next) = (Vec::new(), self.behind(die)?);
        for _ in 0..MAX_DEPTH {
            let Some(offset) = next else { break };
            let ty = self.unit.entry(offset)?;
            if matches!(ty.tag(), gimli::DW_TAG_typedef | gimli::DW_TAG_enumeration_type) {
                names.extend(self.name(&ty));
            }
            next = if is_modifier(ty.tag()) { self.behind(&ty)? } else { None };
        }
        Ok(names)
    }

    fn pointee(&self, pointer: &Die<'_>) -> gimli::Result<Pointee> {
        let mut pointee = Pointee::default();
        let mut next = self.behind(pointer)?;
        for _ in 0..MAX_DEPTH {
            let Some(offset) = next else {
                pointee.is_void = true;
                break;
            };
            let ty = self.unit.entry(offset)?;
            match ty.tag() {
                gimli::DW_TAG_const_type => pointee.is_const = true,
                tag if is_modifier(tag) || tag == gimli::DW_TAG_array_type => {}
                gimli::DW_TAG_subroutine_type => {
                    pointee.is_func = true;
                    break;
                }
                tag => {
                    pointee.size = Self::size(&ty)?;
                    if matches!(tag, gimli::DW_TAG_structure_type | gimli::DW_TAG_union_type) {
                        pointee.struct_name = self.name(&ty);
                    }
                    break;
                }
            }
            next = self.behind(&ty)?;
        }
        Ok(pointee)
    }
}

fn is_modifier(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type
    )
}

#[cfg(test)]
pub(crate) mod dwarf;

#[cfg(test)]
mod tests {
    use super::dwarf::{self, INT};
    use super::*;

    fn module(own: &[(&[u8], u32)]) -> ModuleImage {
        parsed(dwarf::module(own))
    }

    fn parsed(bytes: Vec<u8>) -> ModuleImage {
        ModuleImage::parse("drv.ko", bytes).unwrap()
    }

    #[test]
    fn functions_have_their_prototypes() {
        let found = of_module(&parsed(dwarf::functions()));
        let int = Type::Int { bits: 32, signed: true };
        let to = |is_const| Pointee {
            size: Some(40),
            is_const,
            struct_name: Some("timer_list".to_owned()),
            ..Pointee::default()
        };
        let void = Pointee { is_void: true, ..Pointee::default() };
        let params = [("t", Type::Ptr(to(false))), ("c", Type::Ptr(to(true))), ("p", Type::Ptr(void))];
        let params = params.map(|(name, ty)| (name.to_owned(), ty)).to_vec();
        assert_eq!(found["probe"], Proto::new(params, false, int.clone()));
        assert_eq!(found["say"], Proto::new(vec![("n".to_owned(), int)], true, Type::Void));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn enumerations_have_their_constants() {
        let module =
            module(&[(b"\x0bcolor\0\x0cRED\0\x02\0", 0), (b"\x0bbox\0\x0cFIRST\0\0\x0cLAST\0\x99\0", 0)]);
        let found = Vec::from_iter(enumeration(&module, "box"));
        assert_eq!(found, [("FIRST".to_owned(), 0), ("LAST".to_owned(), 0x99)]);
        assert!(enumeration(&module, "shape").is_empty());
    }

    #[test]
    fn types_without_an_end_are_given_up() {
        // This is a const of itself.
        let found = of_module(&module(&[(b"\x05", 32), (b"\x06f\0", 32), (b"\0", 0)]));
        assert_eq!(found["f"].result, Type::Other);
        // What could be read before a mistake counts.
        let found = of_module(&module(&[(b"\x06f\0", INT), (b"\0\x06g\0", 5000), (b"\0", 0)]));
        assert_eq!(found.keys().collect::<Vec<_>>(), ["f"]);
    }
}
