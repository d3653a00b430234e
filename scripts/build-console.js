// Bundles the console into packages/console/dist/site, where the server finds it. Its types were checked by tsc.
import { build } from "vite";

export async function buildConsole() {
  await build({ root: "packages/console", logLevel: "warn" });
}
