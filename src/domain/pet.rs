//! Animals.

use std::borrow::Cow;

use super::{PageQuery, Text, names, write_json_string};

names! {
    /// Availability of an animal. The databases store the codes.
    pub enum PetStatus {
        Available = "available",
        Pending = "pending",
        Sold = "sold",
    }
}

/// An animal's name: 1 to 255 Unicode characters, not only white space, no control characters.
pub type PetName = Text<255, false>;

/// An animal to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPet {
    pub name: PetName,
    pub category_id: i64,
    pub status: PetStatus,
}

impl NewPet {
    /// The fields of its JSON object.
    pub const FIELDS: [&str; 3] = ["name", "categoryId", "status"];

    /// An available animal without optional fields.
    pub const fn new(name: PetName, category_id: i64) -> Self {
        Self { name, category_id, status: PetStatus::Available }
    }

    pub fn with_id(self, id: i64) -> Pet<'static> {
        Pet { id, name: self.name.into_string().into(), category_id: self.category_id, status: self.status }
    }
}

/// A stored animal. Lists borrow the names from database rows, so that listing copies none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pet<'a> {
    pub id: i64,
    pub name: Cow<'a, str>,
    pub category_id: i64,
    pub status: PetStatus,
}

impl Pet<'_> {
    pub fn into_owned(self) -> Pet<'static> {
        Pet { id: self.id, name: self.name.into_owned().into(), category_id: self.category_id, status: self.status }
    }

    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(self.name.len() + 96);
        self.write_json(&mut json);
        json
    }

    /// Appends the JSON object of the API. Written by hand, because listing is the hottest path of the service.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        out.extend_from_slice(b"{\"id\":");
        out.extend_from_slice(digits.format(self.id).as_bytes());
        out.extend_from_slice(b",\"name\":");
        write_json_string(out, &self.name);
        out.extend_from_slice(b",\"categoryId\":");
        out.extend_from_slice(digits.format(self.category_id).as_bytes());
        out.extend_from_slice(b",\"status\":\"");
        out.extend_from_slice(self.status.as_str().as_bytes());
        out.extend_from_slice(b"\"}");
    }
}

/// Number of animals of each status, in the order of [`PetStatus::ALL`].
pub type StatusCounts = [u64; PetStatus::ALL.len()];

/// Selects one page of animals.
pub type PetQuery = PageQuery<PetStatus>;

/// Returns the 30 animals of `quickstart`.
pub fn sample_animals() -> impl Iterator<Item = Result<NewPet, String>> + Send {
    const NAMES: [&str; 30] = [
        "Rex", "Mimi", "Bubbles", "Coco", "Luna", "Nemo", "Polly", "Rocky", "Shelly", "Tango", "Ziggy", "Hazel",
        "Biscuit", "Clover", "Domino", "Ember", "Freckles", "Ginger", "Hugo", "Iris", "Juniper", "Kiwi", "Lotte",
        "Maple", "Noodle", "Olive", "Pepper", "Quill", "Rusty", "Saffron",
    ];
    NAMES.iter().enumerate().map(|(position, name)| {
        let name = PetName::parse((*name).to_owned()).map_err(|error| error.to_string())?;
        Ok(NewPet { status: PetStatus::ALL[position % 3], ..NewPet::new(name, position as i64 % 4 + 1) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_animals_are_of_each_status_and_four_categories() {
        let animals: Vec<_> = sample_animals().map(Result::unwrap).collect();
        for status in PetStatus::ALL {
            assert_eq!(animals.iter().filter(|animal| animal.status == status).count(), 10);
        }
        for (category, count) in [(1, 8), (2, 8), (3, 7), (4, 7)] {
            assert_eq!(animals.iter().filter(|animal| animal.category_id == category).count(), count);
        }
    }

    #[test]
    fn animal_is_written_as_serde_writes_it() {
        for name in ["Rex", "\"\\/", "ß🦊\u{2028}", "</script>"] {
            let pet =
                Pet { id: 9_007_199_254_740_991, name: name.into(), category_id: i64::MIN, status: PetStatus::Sold };
            let expected = format!(
                r#"{{"id":9007199254740991,"name":{},"categoryId":-9223372036854775808,"status":"sold"}}"#,
                serde_json::to_string(name).unwrap()
            );
            assert_eq!(String::from_utf8(pet.to_json()).unwrap(), expected);
        }
    }
}
