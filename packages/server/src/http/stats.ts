import { ROUTES, type Stats } from "@tenure/protocol";
import { type Served, serve } from "./route.ts";

export function statsRoutes({ read }: { read: () => Promise<Stats> }): Served[] {
  return [serve(ROUTES.readStats, read)];
}
