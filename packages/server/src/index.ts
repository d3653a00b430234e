export type { App } from "./app.ts";
export type { LogLevel } from "./kernel/log.ts";
export { runServer, type ServerOptions } from "./main.ts";
