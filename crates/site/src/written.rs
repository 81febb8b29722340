//! Writes a site to files.

use crate::error::SiteError;
use crate::site::Site;
use std::fs;
use std::io;
use std::path::Path;

/// Writes all pages below a folder that is new or empty, and returns how many.
pub fn write(site: &Site, folder: &Path) -> Result<usize, SiteError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source: io::Error| SiteError::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    if fs::read_dir(folder).map_err(failed(folder))?.next().is_some() {
        return Err(SiteError::NotEmpty(folder.display().to_string()));
    }
    let mut written = 0;
    for path in site.paths() {
        let file = folder.join(path);
        let Some(page) = site.page(path) else { continue };
        let parent = file.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(failed(parent))?;
        fs::write(&file, page).map_err(failed(&file))?;
        written += 1;
    }
    Ok(written)
}
