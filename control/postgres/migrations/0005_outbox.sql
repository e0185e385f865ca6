-- A claim now changes no column of an index, so the server keeps it within the row's page and writes to no index (a heap-only update). What is due
-- is found in one index of what is not delivered; what others have claimed is stepped over, and there is little of it.
DROP INDEX weir.outbox_pending;
DROP INDEX weir.outbox_claimed;
CREATE INDEX outbox_open ON weir.outbox (id) WHERE delivered IS NULL;
-- Room in each page for the claimed version of every row in it, which is longer by the claimant's name.
ALTER TABLE weir.outbox SET (fillfactor = 40);
-- The code sends its statement: a function of this kind is planned anew at each call.
DROP FUNCTION weir.claim(text, integer);
