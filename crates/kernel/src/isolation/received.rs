//! Pointers that a driver receives from the kernel, as far as types show them, and may pass back.

use super::{Annotation, Isolation, resolve};
use guardrail_abi::{Action, Step, Value, When};
use guardrail_binfmt::btf::{Proto, Type};

/// What a function of the kernel needs that takes functions: it will call them.
pub(super) fn called(proto: Option<&Proto>, raw: &[u8]) -> Vec<Step> {
    let params = resolve::numbers(proto).into_iter().zip(proto.map_or(&[][..], |proto| &proto.params));
    let functions = params.filter(|(number, param)| {
        matches!(&param.ty, Type::Ptr(pointee) if pointee.is_func) && !raw.contains(number)
    });
    functions.map(|(number, _)| Action::RequireCall { pointer: Value::Arg(number) }.into()).collect()
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
        if kept(super::structure_behind(&proto.result)) {
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
}
