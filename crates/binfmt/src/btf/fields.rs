//! Names for offsets in structures.

use super::{Btf, Kind, TypeId};
use crate::bytes::u32_at;
use std::fmt::Write;

/// How deep structures in structures are followed.
const MAX_NESTING: u32 = 32;

/// A structure that a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointed<'a> {
    /// Its name; empty where it has none.
    pub name: &'a str,
    /// Its size in bytes.
    pub size: u64,
    /// It ends with an array without a length, so that its memory may be longer.
    pub open: bool,
}

impl Btf {
    /// The name of the only structure of this size among these types, without those of a base. `None` if
    /// several have it.
    pub fn only_struct_of_size(&self, size: u64) -> Option<&str> {
        let mut found: Option<&str> = None;
        for id in self.first_id..self.end_id() {
            let Some(raw) = self.raw(id).filter(|t| t.kind == Kind::Struct && u64::from(t.value) == size)
            else {
                continue;
            };
            match (found, self.name_of(raw)) {
                (_, "") => {}
                (None, name) => found = Some(name),
                (Some(other), name) if other == name => {}
                _ => return None,
            }
        }
        found
    }

    /// The member at an offset of a structure, as `rx_ring.next_to_clean` or `slots[3].dma`. In a union it is
    /// the first member that reaches so far. `None` in padding and behind the end.
    pub fn field_at(&self, structure: TypeId, offset: u64) -> Option<String> {
        self.path_to(structure, offset, &[]).map(|(path, _)| path)
    }

    /// The member of one of these types, named as in C, that begins at an offset of a structure.
    pub fn field_of_type(&self, structure: TypeId, offset: u64, types: &[&str]) -> Option<String> {
        self.path_to(structure, offset, types).filter(|&(_, rest)| rest == Some(0)).map(|(path, _)| path)
    }

    /// The path to what is at an offset of a structure. It ends at the first member of one of these types, and
    /// has the offset in that member, or else at a member that is no structure.
    fn path_to(&self, structure: TypeId, offset: u64, types: &[&str]) -> Option<(String, Option<u64>)> {
        let mut path = String::new();
        let (mut ty, mut offset) = (structure, offset);
        for _ in 0..MAX_NESTING {
            if !path.is_empty() && self.is_named(ty, types) {
                return Some((path, Some(offset)));
            }
            let id = self.resolve(ty)?;
            let raw = self.raw(id)?;
            match raw.kind {
                Kind::Struct | Kind::Union => {
                    let (name, member, start) = self.member_over(id, offset)?;
                    if !name.is_empty() {
                        if !path.is_empty() {
                            path.push('.');
                        }
                        path.push_str(name);
                    }
                    ty = member;
                    offset = offset.checked_sub(start)?;
                }
                Kind::Array => {
                    ty = u32_at(raw.extra, 0)?;
                    let size = self.size_of(ty).filter(|&size| size > 0)?;
                    write!(path, "[{}]", offset / size).ok()?;
                    offset %= size;
                }
                _ => break,
            }
        }
        (!path.is_empty()).then_some((path, None))
    }

    /// Whether a type has one of these names, by itself or by a `typedef`.
    fn is_named(&self, mut id: TypeId, names: &[&str]) -> bool {
        for _ in 0..MAX_NESTING {
            let Some(raw) = self.raw(id) else { return false };
            if names.contains(&self.name_of(raw)) {
                return true;
            }
            if raw.kind != Kind::Typedef {
                return false;
            }
            id = raw.value;
        }
        false
    }

    /// Whether a structure has a pointer to a function, not counting structures in it.
    pub fn has_functions(&self, structure: TypeId) -> bool {
        let raw = self.resolve(structure).and_then(|id| self.raw(id));
        let Some(raw) = raw.filter(|t| matches!(t.kind, Kind::Struct | Kind::Union)) else { return false };
        let types = raw.extra.chunks_exact(12).filter_map(|member| u32_at(member, 4));
        types.filter_map(|ty| self.pointee_type(ty)).any(|pointee| self.is_function(pointee))
    }

    /// The type of the member that begins at an offset of a structure and is no structure itself. In a union it is the
    /// first member.
    pub fn type_at(&self, structure: TypeId, offset: u64) -> Option<TypeId> {
        let (mut id, mut offset) = (self.resolve(structure)?, offset);
        for _ in 0..MAX_NESTING {
            let raw = self.raw(id)?;
            match raw.kind {
                Kind::Struct | Kind::Union => {
                    let (_, ty, start) = self.member_over(id, offset)?;
                    id = self.resolve(ty)?;
                    offset = offset.checked_sub(start)?;
                }
                Kind::Array => {
                    id = self.resolve(u32_at(raw.extra, 0)?)?;
                    offset %= self.size_of(id).filter(|&size| size > 0)?;
                }
                _ => return (offset == 0).then_some(id),
            }
        }
        None
    }

    /// The structure that the pointer at an offset of a structure points to.
    pub fn pointed_at(&self, structure: TypeId, offset: u64) -> Option<Pointed<'_>> {
        let id = self.pointee_type(self.type_at(structure, offset)?)?;
        let raw = self.raw(id).filter(|t| t.kind == Kind::Struct)?;
        let last = raw.extra.chunks_exact(12).next_back();
        let open = last.and_then(|member| u32_at(member, 4)).is_some_and(|ty| self.is_endless(ty));
        Some(Pointed { name: self.name_of(raw), size: u64::from(raw.value), open })
    }

    /// Whether a type is an array without a length.
    fn is_endless(&self, ty: TypeId) -> bool {
        let raw = self.resolve(ty).and_then(|ty| self.raw(ty));
        raw.is_some_and(|t| t.kind == Kind::Array && u32_at(t.extra, 8) == Some(0))
    }

    /// The first member that covers an offset: its name, its type, and the byte where it begins. An array
    /// without a length at the end of a structure has no end.
    fn member_over(&self, id: TypeId, offset: u64) -> Option<(&str, TypeId, u64)> {
        let raw = self.raw(id)?;
        let mut open = None;
        for member in raw.extra.chunks_exact(12) {
            let (name, ty, place) = (u32_at(member, 0)?, u32_at(member, 4)?, u32_at(member, 8)?);
            let (first_bit, bits) = match raw.flag {
                true => (u64::from(place & 0xff_ffff), u64::from(place >> 24)),
                false => (u64::from(place), 0),
            };
            let (start, end) = match bits {
                // A type whose size is not known takes no bytes.
                0 => (first_bit / 8, (first_bit / 8).saturating_add(self.size_of(ty).unwrap_or(0))),
                bits => (first_bit / 8, (first_bit + bits).div_ceil(8)),
            };
            let name = || self.string(name).and_then(|name| std::str::from_utf8(name).ok());
            if (start..end).contains(&offset) {
                return Some((name()?, ty, if bits == 0 { start } else { offset }));
            }
            let endless = raw.kind == Kind::Struct && self.is_endless(ty);
            open = (endless && start <= offset).then_some((name()?, ty, start));
        }
        open
    }
}
