//! Variables that are structures of function pointers.

use super::{Isolation, Member, functions};
use std::collections::BTreeSet;

impl Isolation<'_> {
    /// Finds the structure of function pointers that a variable is, by its size and by the offsets of
    /// functions in it. Returns each function's name in the driver with its member. Empty unless exactly one
    /// structure fits.
    pub fn operations(&self, size: u64, functions: &[(u64, String)]) -> Vec<(String, Member)> {
        let structures: BTreeSet<&String> = self.entries.keys().map(|member| &member.structure).collect();
        let mut found: Vec<Vec<(String, Member)>> = Vec::new();
        for structure in structures {
            found.extend(self.members_of(structure, size, functions));
        }
        match found.len() {
            1 => found.remove(0),
            _ => Vec::new(),
        }
    }

    /// The members of a structure that hold these functions, each by its offset, in a variable of a size; `None` where the
    /// variable is no such structure.
    pub fn members_of(
        &self,
        structure: &str,
        size: u64,
        functions: &[(u64, String)],
    ) -> Option<Vec<(String, Member)>> {
        let (btf, id) = self.structure(structure)?;
        if btf.size_of(id) != Some(size) {
            return None;
        }
        let members = functions.iter().map(|(offset, function)| {
            let member = btf.field_at(id, *offset)?;
            let (start, ty) = btf.member(id, &member)?;
            let wanted = btf.pointed_proto(ty).filter(|_| start == *offset)?;
            let own = self.own_proto(function);
            let fits = own.is_none_or(|own| functions::same(&own, &wanted));
            fits.then(|| (function.clone(), Member { structure: structure.to_owned(), member }))
        });
        members.collect()
    }
}
