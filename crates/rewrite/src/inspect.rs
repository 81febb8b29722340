//! Inspects a guarded module file: whether it fits the runtime that is to load it. What its code does is for
//! `certify` to prove.

use crate::border::guard;
use crate::border::runtime::Exports;
use crate::engine::object::Object;
use crate::error::{Result, RewriteError};
use guardrail_abi::FIELD;
use guardrail_abi::layout::module as row;
use guardrail_binfmt::ModuleImage;
use guardrail_binfmt::module::unpack;

/// What the inspection of a guarded module shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// The module's name, as the kernel shows it.
    pub name: String,
    /// The release of the kernel that it is for.
    pub release: String,
    /// The names of the passes that made it, from `.modinfo`.
    pub passes: String,
    /// What is wrong, each in a sentence; empty where it fits.
    pub faults: Vec<String>,
}

/// Inspects a guarded module, compressed or not, and whether it fits a runtime.
///
/// # Errors
/// The file is no module, or not a guarded one.
pub fn inspect(what: &str, file: Vec<u8>, runtime: Option<&Exports>) -> Result<Inspected> {
    let data = unpack(what, file)?;
    let image = ModuleImage::parse(what, data.clone())?;
    let Some(passes) = image.info(FIELD) else {
        return Err(RewriteError::NotGuarded { what: what.to_owned() });
    };
    let object = Object::read(what, &data)?;
    let mut inspected = Inspected {
        name: image.name(),
        release: image.release().unwrap_or_default().to_owned(),
        passes: passes.to_owned(),
        ..Inspected::default()
    };
    let mut faults = Vec::new();
    let described = object.section(guard::SECTION).and_then(|section| name(&object, section));
    if described.as_deref() != Some(inspected.name.as_str()) {
        let described = described.as_deref().unwrap_or("nothing");
        faults.push(format!("its description is that of {described}"));
    }
    versions(&object, runtime, &mut faults);
    if let Some(runtime) = runtime {
        if runtime.release != inspected.release {
            faults.push(format!(
                "it is for kernel {}, and the runtime for {}",
                inspected.release, runtime.release
            ));
        }
        let own = object.section(guard::SECTION).and_then(|section| {
            let bytes = object.sections[section].bytes().get(row::ABI..row::ABI + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        });
        if let (Some(has), Some(wants)) = (runtime.abi, own.filter(|own| Some(*own) != runtime.abi)) {
            faults.push(format!("it is for interface {wants} of the runtime, which has {has}"));
        }
    }
    inspected.faults = faults;
    Ok(inspected)
}

/// The name in a description.
fn name(object: &Object, section: usize) -> Option<String> {
    let relocs = &object.sections[section].relocs;
    let reloc = relocs.iter().find(|reloc| reloc.offset == row::NAME as u64)?;
    let (section, at) = object.target(reloc.symbol, reloc.addend)?;
    let text = object.sections[section].bytes().get(at as usize..)?;
    Some(std::str::from_utf8(text.split(|&byte| byte == 0).next()?).ok()?.to_owned())
}

/// Reports each import that the runtime does not have, or has in another version than the module wants.
fn versions(object: &Object, runtime: Option<&Exports>, faults: &mut Vec<String>) {
    let known = guard::versions(object);
    for name in guard::imports(object) {
        let sum = known.as_ref().map(|known| known.get(name).copied());
        if sum == Some(None) {
            faults.push(format!("it has no version of {name}, so the kernel would not load it"));
        }
        let Some(runtime) = runtime else { continue };
        match (runtime.symbols.get(name), sum.flatten()) {
            (None, _) => faults.push(format!("the runtime exports no {name}")),
            (Some(Some(has)), Some(wants)) if u64::from(*has) != wants => {
                faults.push(format!("it wants {name} in version {wants:08x}, and the runtime has {has:08x}"));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::checks::Checks;
    use crate::rewrite;
    use crate::tests::Module;

    #[test]
    fn what_is_no_guarded_module_is_an_error() {
        let stock = Module::new(&[0xc3]).0.write().unwrap();
        let said = inspect("made.ko", stock.clone(), None).unwrap_err().to_string();
        assert_eq!(said, "made.ko is not a guarded module");
        let said = Exports::read("made.ko", stock).unwrap_err().to_string();
        assert_eq!(said, "made.ko is not the runtime, guardrail.ko");
    }

    #[test]
    fn damaged_modules_give_faults_or_an_error() {
        let stock = Module::new(&[0x48, 0x89, 0x77, 0x08, 0xc3]).0.write().unwrap();
        let checked = rewrite("made.ko", stock, &mut [&mut Checks::new(1)]).unwrap();
        for at in 0..checked.file.len() {
            let mut changed = checked.file.clone();
            changed[at] ^= 0x5a;
            let _ = inspect("made.ko", changed, None);
            let _ = inspect("made.ko", checked.file[..at].to_vec(), None);
        }
    }
}
