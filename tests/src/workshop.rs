//! Guards modules of one kernel, as `guardrail guard` does.

use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_kernel::isolation::{Isolation, types};
use guardrail_rewrite::border::Interposition;
use guardrail_rewrite::border::annotations::{border, transact};
use guardrail_rewrite::border::runtime::Exports;
use guardrail_rewrite::passes::checks::Checks;
use guardrail_rewrite::{Object, RewriteError, rewrite};
use guardrail_vm::kernels;
use guardrail_vm::modules::{LoadPlan, ModuleFile, Modules};
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::runtime;
use libtest_mimic::Failed;
use std::path::Path;

/// A kernel's modules and types, and the runtime for it.
pub struct Workshop {
    /// The modules of the kernel package.
    pub modules: Modules,
    /// The runtime module, `guardrail.ko`, built for the kernel.
    pub runtime: Vec<u8>,
    image: KernelImage,
    exports: Exports,
}

impl Workshop {
    /// Fetches the kernel and builds the runtime where the cache lacks them.
    pub fn of(packages: &Packages, kernel: &str) -> Result<Workshop, Failed> {
        let kernel = kernels::find(packages, kernel)?;
        let built = runtime::ensure(packages, &kernel)?;
        let runtime = std::fs::read(&built.module)?;
        Ok(Workshop {
            modules: Modules::of(&kernel, &Parser::here())?,
            image: KernelImage::open(&kernel.vmlinuz)?,
            exports: Exports::read("guardrail.ko", runtime.clone())?,
            runtime,
        })
    }

    /// The border of the module that a plan loads, by the kernel's types and those of the modules that it
    /// needs. `table` replaces the annotations that are built in.
    pub fn isolation<'a>(&self, plan: &LoadPlan, table: Option<&'a str>) -> Result<Isolation<'a>, Failed> {
        let image = |module: &ModuleFile| ModuleImage::parse(&module.name, module.bytes.clone());
        let needed = plan.before.iter().map(image).collect::<Result<Vec<_>, _>>()?;
        let types = types(&self.image, &image(&plan.driver)?, &needed);
        match table {
            Some(table) => Ok(Isolation::new(&[("table", table)], types)?),
            None => Ok(Isolation::built_in(types)?),
        }
    }

    /// The module that a plan loads, guarded in domain 1, except for functions with these names.
    pub fn guarded(
        &self,
        plan: &LoadPlan,
        table: Option<&str>,
        trusted: &[String],
    ) -> Result<Result<ModuleFile, RewriteError>, Failed> {
        self.guarded_in(1, plan, table, trusted)
    }

    /// The same in any domain.
    pub fn guarded_in(
        &self,
        domain: u8,
        plan: &LoadPlan,
        table: Option<&str>,
        trusted: &[String],
    ) -> Result<Result<ModuleFile, RewriteError>, Failed> {
        let driver = &plan.driver;
        let found = border(&self.isolation(plan, table)?, &Object::read(&driver.name, &driver.bytes)?);
        self.rewritten(domain, driver, found.interposition, trusted, 0)
    }

    /// The module that a plan loads, guarded in domain 1, whose entries can be transactions.
    pub fn transacting(&self, plan: &LoadPlan) -> Result<ModuleFile, Failed> {
        let (driver, isolation) = (&plan.driver, self.isolation(plan, None)?);
        let object = Object::read(&driver.name, &driver.bytes)?;
        let mut found = border(&isolation, &object);
        transact(&mut found, &isolation, &object, &|_| false);
        Ok(self.rewritten(1, driver, found.interposition, &[], 0)??)
    }

    /// The module that a plan loads, guarded in domain 1, with a poor grade: one of its imports has no rule,
    /// and all should have.
    pub fn poorly_graded(&self, plan: &LoadPlan) -> Result<ModuleFile, Failed> {
        let driver = &plan.driver;
        let mut found = border(&self.isolation(plan, None)?, &Object::read(&driver.name, &driver.bytes)?);
        let callee = found.interposition.callable.values_mut().next().ok_or("it imports nothing")?;
        callee.ruled = false;
        Ok(self.rewritten(1, driver, found.interposition, &[], 100)??)
    }

    fn rewritten(
        &self,
        domain: u8,
        driver: &ModuleFile,
        interposition: Interposition,
        trusted: &[String],
        threshold: u32,
    ) -> Result<Result<ModuleFile, RewriteError>, Failed> {
        let mut checks = Checks::new(domain)
            .guarded(&driver.name, &self.exports)
            .trusting(trusted.iter().cloned())
            .wanting(threshold)
            .interposing(interposition);
        let rewritten = rewrite(&driver.name, driver.bytes.clone(), &mut [&mut checks]);
        Ok(rewritten.map(|rewritten| ModuleFile { bytes: rewritten.file, ..driver.clone() }))
    }

    /// Writes a guarded module, and the runtime beside it.
    pub fn write(&self, module: &ModuleFile, folder: &Path) -> Result<String, Failed> {
        std::fs::write(folder.join("guardrail.ko"), &self.runtime)?;
        let path = folder.join(format!("{}.ko", module.name));
        std::fs::write(&path, &module.bytes)?;
        Ok(path.display().to_string())
    }
}
