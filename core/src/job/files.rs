//! The files that a path with wildcards means. Folders are listed by the caller: no file is touched here.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern, PatternError};

/// What stands in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, which need not be UTF-8.
    pub name: OsString,
    /// It is a folder, or a link to one.
    pub is_folder: bool,
    /// It is a link.
    pub is_link: bool,
}

/// What a pattern came to.
#[derive(Debug)]
pub struct Matching<E> {
    /// The files, in the order of their paths, each once.
    pub files: BTreeSet<PathBuf>,
    /// Folders that could not be listed. The first one, from where the pattern starts, is an error instead.
    pub unreadable: Vec<(PathBuf, E)>,
}

/// Why a pattern gives no files.
#[derive(Debug)]
pub enum NoMatching<E> {
    /// It is none.
    Pattern(PatternError),
    /// The folder from where it starts cannot be listed.
    Folder(PathBuf, E),
}

/// One part of a pattern, between two slashes.
enum Part {
    /// `**`: any folders, none included. Links to folders are not followed, since they may lead back.
    Folders,
    Name(Pattern),
}

impl Part {
    fn fits(&self, name: &str) -> bool {
        const OPTIONS: MatchOptions = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        match self {
            Self::Folders => !name.starts_with('.'),
            Self::Name(pattern) => pattern.matches_with(name, OPTIONS),
        }
    }
}

/// Some character of it stands for others.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Files that match a pattern, relative ones from `folder`, whose own name is no pattern. `list` gives what
/// stands in a folder, and nothing for one that is not there. A name that is not UTF-8 matches with marks in
/// the place of what is not.
pub fn matching<E>(
    pattern: &str,
    folder: &Path,
    mut list: impl FnMut(&Path) -> Result<Vec<Entry>, E>,
) -> Result<Matching<E>, NoMatching<E>> {
    let mut found = Matching { files: BTreeSet::new(), unreadable: Vec::new() };
    let mut root = if pattern.starts_with('/') { PathBuf::from("/") } else { folder.to_owned() };
    let mut names = pattern.split('/').filter(|name| !name.is_empty() && *name != ".").peekable();
    while let Some(name) = names.next_if(|name| !is_pattern(name)) {
        root.push(name);
    }
    let mut parts = Vec::new();
    for name in names {
        match (name, parts.last()) {
            ("**", Some(Part::Folders)) => {}
            ("**", _) => parts.push(Part::Folders),
            _ => parts.push(Part::Name(Pattern::new(name).map_err(NoMatching::Pattern)?)),
        }
    }
    if pattern.ends_with('/') {
        // Folders alone are meant.
        return Ok(found);
    }
    let mut todo = vec![(root.clone(), 0)];
    let mut seen = BTreeSet::new();
    while let Some((folder, at)) = todo.pop() {
        if !seen.insert((folder.clone(), at)) {
            continue;
        }
        let entries = match list(&folder) {
            Ok(entries) => entries,
            Err(cause) if folder == root => return Err(NoMatching::Folder(folder, cause)),
            Err(cause) => {
                if !found.unreadable.iter().any(|(known, _)| *known == folder) {
                    found.unreadable.push((folder, cause));
                }
                continue;
            }
        };
        for entry in entries {
            let name = entry.name.to_string_lossy();
            let mut at = at;
            if matches!(parts.get(at), Some(Part::Folders)) {
                if entry.is_folder && !entry.is_link && parts[at].fits(&name) {
                    todo.push((folder.join(&entry.name), at));
                }
                at += 1;
            }
            let Some(part) = parts.get(at) else { continue };
            if !part.fits(&name) {
                continue;
            }
            if at + 1 == parts.len() {
                if !entry.is_folder {
                    found.files.insert(folder.join(&entry.name));
                }
            } else if entry.is_folder {
                todo.push((folder.join(&entry.name), at + 1));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn entry(name: &str, is_folder: bool) -> Entry {
        Entry { name: name.into(), is_folder, is_link: false }
    }

    fn tree() -> BTreeMap<PathBuf, Vec<Entry>> {
        let odd = Entry { name: OsString::from_vec(b"caf\xe9.x".to_vec()), is_folder: false, is_link: false };
        let back = Entry { name: "back".into(), is_folder: true, is_link: true };
        [
            ("/r", vec![entry("a.x", false), entry(".b.x", false), entry("sub", true), entry(".git", true)]),
            ("/r/sub", vec![entry("c.x", false), entry("d.y", false), entry("shut", true), odd, back]),
            ("/r/.git", vec![entry("e.x", false)]),
            ("/r/sub/back", vec![entry("c.x", false)]),
        ]
        .map(|(folder, entries)| (PathBuf::from(folder), entries))
        .into()
    }

    fn found(pattern: &str) -> (Vec<String>, Vec<PathBuf>) {
        let tree = tree();
        let list = |folder: &Path| tree.get(folder).cloned().ok_or("shut");
        let found = matching(pattern, Path::new("/r"), list).unwrap();
        let files = found.files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
        (files, found.unreadable.into_iter().map(|(folder, _)| folder).collect())
    }

    #[test]
    fn wildcards_stand_for_names_and_folders() {
        assert_eq!(found("*.x").0, ["/r/a.x"]);
        assert_eq!(found(".*.x").0, ["/r/.b.x"]);
        assert_eq!(found("/r/s?b/[cd].*").0, ["/r/sub/c.x", "/r/sub/d.y"]);
        assert_eq!(found("*/c.x").0, ["/r/sub/c.x"]);
        // Through a link that is named, not through one that any folder stands for.
        assert_eq!(found("sub/*/c.x").0, ["/r/sub/back/c.x"]);
        assert_eq!(found("**/**/c.x").0, ["/r/sub/c.x"]);
        assert!(found("*/").0.is_empty() && found("**").0.is_empty());
    }

    #[test]
    fn a_name_that_is_not_utf8_matches_and_a_shut_folder_is_noted() {
        let (files, shut) = found("**/*.x");
        assert_eq!(files, ["/r/a.x", "/r/sub/c.x", "/r/sub/caf\u{fffd}.x"]);
        assert_eq!(shut, [PathBuf::from("/r/sub/shut")]);
        let shut = matching("/none/*", Path::new("/r"), |_| Err::<Vec<Entry>, _>("shut")).unwrap_err();
        assert!(matches!(shut, NoMatching::Folder(folder, "shut") if folder == Path::new("/none")));
        let tree = |_: &Path| Ok::<_, ()>(Vec::new());
        assert!(matches!(matching("a[", Path::new("/r"), tree), Err(NoMatching::Pattern(_))));
    }
}
