//! The first animals of a store: those of a file, sample animals, or none.

use std::path::{Path, PathBuf};

use clap::Args;

use super::animal_file::AnimalFile;
use crate::cli::Outcome;
use crate::cli::terminal::progress::counted;
use crate::domain::sample_animals;
use crate::store::PetSource;

#[derive(Args, Debug)]
pub struct FirstAnimals {
    /// Start with the animals of this file, or of stdin for `-`, as in `petstore pets import`, instead of 30 sample animals
    #[arg(long, value_name = "FILE", conflicts_with = "empty")]
    pets: Option<PathBuf>,
    /// Start without animals
    #[arg(long)]
    empty: bool,
}

impl FirstAnimals {
    /// Opens and validates the file, and returns the animals for [`import_pets`](crate::store::Store::import_pets).
    /// Reports invalid lines and fails if there are any, so callers change nothing before. `folder` is that of
    /// [`AnimalFile::open`].
    pub fn open(&self, folder: Option<&Path>) -> Outcome<PetSource> {
        match &self.pets {
            _ if self.empty => Ok(Box::new(std::iter::empty())),
            None => Ok(Box::new(sample_animals())),
            Some(path) => {
                let mut file = AnimalFile::open(path, folder)?;
                let why = match file.check()? {
                    (0, 0) => format!("{} has no animals (--pets): to have none, use --empty", path.display()),
                    (_, 0) => return Ok(file.animals(false)),
                    (_, invalid) => format!("nothing was imported: {}; correct them", counted(invalid, "invalid line")),
                };
                Err(why.into())
            }
        }
    }
}
