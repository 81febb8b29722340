//! Reads the runtime, `guardrail.ko`: what it exports, and what it is for.

use crate::border::life::Hooks;
use crate::engine::object::Object;
use crate::error::{Result, RewriteError};
use guardrail_abi::{self as abi, ABI};
use guardrail_binfmt::ModuleImage;
use guardrail_binfmt::module::unpack;
use std::collections::BTreeMap;

/// Bytes of a row of `__ksymtab`: value, name, namespace.
const EXPORT: u64 = 12;

/// What a runtime offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exports {
    /// The release of the kernel that it is built for.
    pub release: String,
    /// The version of its interface; `None` if it does not say.
    pub abi: Option<u32>,
    /// The symbols that it exports, with checksums where its kernel wants them.
    pub symbols: BTreeMap<String, Option<u32>>,
    /// Where its kernel has a module's init and exit functions; `None` if modules need not get some.
    pub hooks: Option<Hooks>,
}

impl Exports {
    /// Reads `guardrail.ko`, compressed or not. `what` names it in errors.
    pub fn read(what: &str, file: Vec<u8>) -> Result<Exports> {
        let data = unpack(what, file)?;
        let image = ModuleImage::parse(what, data.clone())?;
        let object = Object::read(what, &data)?;
        let sums = |section: &str| {
            object
                .section(&section.replace("__ksymtab", "__kcrctab"))
                .map(|index| object.sections[index].bytes())
        };
        let mut symbols = BTreeMap::new();
        for symbol in &object.symbols {
            let (Some(name), Some(section)) = (symbol.name.strip_prefix("__ksymtab_"), symbol.section())
            else {
                continue;
            };
            let at = (symbol.value / EXPORT * 4) as usize;
            let sum =
                sums(&object.sections[section].name).and_then(|bytes| bytes.get(at..at + 4)?.try_into().ok());
            symbols.insert(name.to_owned(), sum.map(u32::from_le_bytes));
        }
        if image.name() != abi::RUNTIME || symbols.is_empty() {
            return Err(RewriteError::NoRuntime { what: what.to_owned() });
        }
        let abi = image.info("version").and_then(|version| version.parse().ok());
        let release = image.release().unwrap_or_default().to_owned();
        Ok(Exports { release, abi, symbols, hooks: Some(Hooks::of(what, &object)?) })
    }

    /// Refuses a runtime that this rewriter makes no modules for, or that is for another kernel.
    pub fn fits(&self, what: &str, release: &str) -> Result<()> {
        let fault = |detail: String| Err(RewriteError::Object { what: what.to_owned(), detail });
        match self.abi {
            Some(ABI) if self.release == release => Ok(()),
            Some(ABI) => {
                fault(format!("it is a runtime for kernel {}, and the driver is for {release}", self.release))
            }
            Some(other) => {
                fault(format!("it is a runtime with interface {other}, and {ABI} is wanted; build it anew"))
            }
            None => fault("it is a runtime that names no version of its interface".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_must_fit() {
        let runtime = |release: &str, abi| Exports { release: release.into(), abi, ..Exports::default() };
        assert!(runtime("6.1", Some(ABI)).fits("g.ko", "6.1").is_ok());
        let said = |exports: Exports| exports.fits("g.ko", "6.1").unwrap_err().to_string();
        assert!(
            said(runtime("6.12", Some(ABI))).contains("a runtime for kernel 6.12, and the driver is for 6.1")
        );
        assert!(said(runtime("6.1", Some(ABI + 1))).contains("build it anew"));
        assert!(said(runtime("6.1", None)).contains("names no version"));
    }
}
