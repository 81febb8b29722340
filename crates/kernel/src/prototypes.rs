//! Prototypes of a module's functions, from its DWARF: a module that is built where no `vmlinux` is at hand has no BTF of its own.

use crate::btf::{Pointee, Proto, Type};
use crate::lines::{Bytes, dwarf_of};
use crate::module::ModuleImage;
use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, Unit, UnitOffset};
use std::collections::BTreeMap;

/// Functions by their names.
pub type Prototypes = BTreeMap<String, Proto>;

/// No type has more names and qualifiers than this.
const MAX_DEPTH: usize = 32;
/// No module has more functions, and no function more parameters.
const MAX_FUNCTIONS: usize = 1 << 20;
const MAX_PARAMS: usize = 64;

type Die<'a> = DebuggingInformationEntry<'a, 'a, Bytes, usize>;

/// The functions of a module, as far as its DWARF can be read; without those that have one name and several prototypes.
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
            let result = self.type_of(die)?;
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
            let proto = Proto::new(params, variadic, result);
            let known = found.entry(name).or_insert_with(|| Some(proto.clone()));
            if known.as_ref() != Some(&proto) {
                *known = None;
            }
        }
        Ok(())
    }

    fn name(&self, die: &Die<'_>) -> Option<String> {
        let name = self.dwarf.attr_string(self.unit, die.attr_value(gimli::DW_AT_name).ok()??).ok()?;
        Some(String::from_utf8_lossy(name.bytes()).into_owned())
    }

    /// Where the type of what an entry describes is described; `None` for `void`.
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
