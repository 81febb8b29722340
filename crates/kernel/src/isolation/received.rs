//! Pointers that a driver receives from the kernel, as far as types show them, and may pass back.

use super::functions::{number, outline};
use super::{Annotation, Isolation, Member, resolve, structure_behind};
use guardrail_abi::{Action, Step, Value, When};
use guardrail_binfmt::btf::{Proto, Type};
use std::collections::HashSet;

/// What a function of the kernel needs that takes functions: it will call them.
pub(super) fn called(functions: &[(u8, u32)], raw: &[u8]) -> Vec<Step> {
    let functions = functions.iter().filter(|(number, _)| !raw.contains(number));
    functions
        .map(|&(number, function)| Action::RequireCall { pointer: Value::Arg(number), function }.into())
        .collect()
}

impl Isolation<'_> {
    /// What a call of a function brings the driver: a structure as its result, or through an argument that points to a
    /// pointer to one.
    pub fn received(&self, name: &str) -> Annotation {
        let mut annotation = Annotation::default();
        let Some(proto) = self.proto(name).or_else(|| self.proto(super::plain(name))) else {
            return annotation;
        };
        let kept = |structure: Option<&str>| structure.is_some_and(|name| !self.passing.contains(name));
        if kept(structure_behind(&proto.result)) {
            let action = resolve::reference(resolve::GRANT_REF, Value::Result);
            annotation.after.push(Step { when: When::ResultValid, action });
        }
        let when = match proto.result {
            Type::Int { signed: true, .. } => When::ResultNotNegative,
            Type::Ptr(_) => When::ResultValid,
            _ => When::Always,
        };
        for (number, param) in resolve::numbers(Some(&proto)).into_iter().zip(&proto.params) {
            let Type::Ptr(pointee) = &param.ty else { continue };
            if kept(pointee.inner.as_deref()) && !pointee.is_const {
                let pointer = Value::Load(Box::new(Value::Arg(number)), 0, 8);
                annotation.after.push(Step { when, action: resolve::reference(resolve::GRANT_REF, pointer) });
            }
        }
        annotation
    }

    /// The arguments of a function of the driver that are pointers to structures and functions, and those that are kept.
    pub(super) fn brought(&self, proto: &Proto) -> (Vec<u8>, Vec<u8>) {
        let (mut all, mut kept) = (Vec::new(), Vec::new());
        for (number, param) in resolve::numbers(Some(proto)).into_iter().zip(&proto.params) {
            let Type::Ptr(pointee) = &param.ty else { continue };
            let structure = pointee.struct_name.as_deref();
            if structure.is_none() && !pointee.is_func {
                continue;
            }
            all.push(number);
            if structure.is_none_or(|name| !self.passing.contains(name)) {
                kept.push(number);
            }
        }
        (all, kept)
    }

    /// The prototype by which the kernel calls a function of the driver, where that is known: of a member that holds it, or the
    /// driver's own where the kernel has such a type of functions. What the driver declares alone says nothing of what it is
    /// called with.
    pub(super) fn typed(&self, members: &[Member], own: Option<&Proto>) -> Option<Proto> {
        let held = members.iter().find_map(|member| self.member_proto(member));
        held.or_else(|| own.filter(|proto| self.callbacks().contains(&outline(proto))).cloned())
    }

    /// The arguments of a function that are functions, each with the number of their type.
    pub(super) fn functions_taken(&self, name: &str) -> Vec<(u8, u32)> {
        let found = |name| {
            self.btf.iter().rev().find_map(|btf| {
                let proto = btf.func_proto(name)?;
                let params = resolve::numbers(Some(&proto)).into_iter().zip(&proto.params);
                let taken = params.filter_map(|(place, param)| match &param.ty {
                    Type::Ptr(to) if to.is_func => {
                        Some((place, to.func.and_then(|id| btf.proto(id)).map_or(0, |proto| number(&proto))))
                    }
                    _ => None,
                });
                Some(taken.collect())
            })
        };
        found(name).or_else(|| found(super::plain(name))).unwrap_or_default()
    }

    /// The types of functions with structures as arguments to which the kernel, or a module that the driver needs, has pointers.
    fn callbacks(&self) -> &HashSet<String> {
        let others =
            if self.prototypes.is_empty() && self.btf.len() > 1 { &self.btf[1..] } else { &self.btf };
        self.callbacks.get_or_init(|| {
            let all = others.iter().flat_map(|btf| (1..btf.end_id()).filter_map(|id| btf.pointed_proto(id)));
            // DWARF is read for functions alone: a type that an exported function has may be that of a pointer as well.
            all.chain(self.needed.values().cloned())
                .filter(|proto| proto.params.iter().any(|param| structure_behind(&param.ty).is_some()))
                .map(|proto| outline(&proto))
                .collect()
        })
    }
}
