//! Cached pages: a list includes every commit that was acknowledged before the request, by any process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::service::{REX, Service};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn list_includes_every_write_acknowledged_before_it() {
    let service = Arc::new(Service::start().await);
    let (acknowledged, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));

    let writers = (0..6).map(|_| {
        let (service, acknowledged) = (Arc::clone(&service), Arc::clone(&acknowledged));
        tokio::spawn(async move {
            for _ in 0..16 {
                assert_eq!(service.post("/v1/pets", REX).await.status(), 201);
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let readers = ["/v1/pets?limit=100", "/v1/pets?limit=100&status=available"].map(|path| {
        let (service, acknowledged, done) = (Arc::clone(&service), Arc::clone(&acknowledged), Arc::clone(&done));
        tokio::spawn(async move {
            let mut sizes = Vec::new();
            while !done.load(Ordering::SeqCst) {
                let least = acknowledged.load(Ordering::SeqCst);
                let listed = service.ids(path).await.len();
                assert!(listed >= least, "{path}: {least} were acknowledged, {listed} are listed");
                sizes.push(listed);
            }
            assert!(sizes.is_sorted(), "an older page follows a newer one: {sizes:?}");
        })
    });

    for writer in writers {
        writer.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(service.ids("/v1/pets?limit=100").await.len(), 96);
}

#[tokio::test]
async fn reads_include_commits_of_this_and_other_processes() {
    let service = Service::start().await;
    let other = service.database();
    for count in 1..=100 {
        // In turns, so that no read in between can keep an old snapshot.
        if count % 2 == 0 {
            service.create_pets(1).await;
        } else {
            other.execute("INSERT INTO pets (name, category_id, status) VALUES ('Mimi', 1, 0)", []).unwrap();
        }
        assert_eq!(service.get(&format!("/v1/pets/{count}")).await.status(), 200);
        // The second response comes from the page cache.
        for _ in 0..2 {
            assert_eq!(service.ids("/v1/pets?limit=100").await.len(), count);
        }
    }
}

#[tokio::test]
async fn cached_page_keeps_its_link() {
    let service = Service::start().await;
    service.create_pets(3).await;
    let (first, again) = (service.get("/v1/pets?limit=2").await, service.get("/v1/pets?limit=2").await);
    assert!(first.header("link").is_some());
    assert_eq!(first.shown(), again.shown());
}
