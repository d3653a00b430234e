import { storeSettings } from "@tenure/testing/fleet/running-server";
import { createDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { type AttackedServer, type AttackToken, attackServer } from "./scene.ts";

/**
 * The attacked server on a database of the run's Postgres, for attacks that do not aim at the store. It starts in a
 * third of the time that a server with an embedded store needs to create its database.
 */
export async function attackServerOnPostgres(
  tokens: AttackToken[],
  { env = {}, settings = "" }: { env?: Record<string, string>; settings?: string } = {},
): Promise<AttackedServer> {
  const database = await createDatabase(stores().postgresAdminUri);
  const server = await attackServer(tokens, {
    env: { ...storeSettings({ postgresUri: database.uri }), ...env },
    settings,
  });
  return {
    ...server,
    async stop(limitMs) {
      const exit = await server.stop(limitMs);
      await database.drop();
      return exit;
    },
  };
}
