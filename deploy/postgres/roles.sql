-- The roles of weir in PostgreSQL: run once for each server, as a superuser, before the first `weir migrate`. It may be run again.
-- The three roles without a login hold the rights; the three logins hold a password each, and one of the roles.
--
--   login           role           may
--   weir_admin      weir_owner     change the schema: `weir migrate`, and nothing else
--   weir            weir_runtime   read and write rows of the tables that the daemons use
--   weir_dashboard  weir_reader    read the views
DO $$
DECLARE
  made text;
BEGIN
  FOREACH made IN ARRAY ARRAY['weir_owner', 'weir_runtime', 'weir_reader'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = made) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS', made);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; -- a migration of another database made it at this moment
      END;
    END IF;
  END LOOP;
  FOREACH made IN ARRAY ARRAY['weir_admin', 'weir', 'weir_dashboard'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = made) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS', made);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; -- a migration of another database made it at this moment
      END;
    END IF;
  END LOOP;
END $$;
GRANT weir_owner TO weir_admin;
GRANT weir_runtime TO weir;
GRANT weir_reader TO weir_dashboard;
