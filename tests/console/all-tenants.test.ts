import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { attackServerOnPostgres } from "../attacks/on-postgres.ts";
import type { AttackedServer } from "../attacks/scene.ts";
import { openBrowser, openWindow, signIn } from "./browser.ts";

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });

let server: AttackedServer;
let browser: Browser;
beforeAll(async () => {
  server = await attackServerOnPostgres([
    { name: "all-admin", role: "admin", tenant: "*" },
    { name: "blue-admin", role: "admin", tenant: "blue" },
  ]);
  browser = await openBrowser();
});
afterAll(async () => {
  await browser?.close();
  await server?.stop();
});

async function open(token: string, path: string) {
  const window = await openWindow(browser);
  const page = await window.newPage();
  await signIn(page, server.url, server.secretOf(token));
  await page.goto(`${server.url}${path}`);
  return { window, page };
}

test.each([
  ["all-admin", "red"],
  ["blue-admin", undefined],
])("%s creates a deployment, and names the tenant %s", async (token, tenant) => {
  const { window, page } = await open(token, "/deployments");
  await page.getByRole("button", { name: "New deployment" }).click();
  const form = page.getByRole("dialog");
  const create = form.getByRole("button", { name: "Create" });
  await form.getByLabel("Name").fill(`of-${token}`);
  await form.getByLabel("Command").fill("sleep 60");
  expect(await form.getByLabel("Tenant").count()).toBe(tenant ? 1 : 0);
  expect(await create.isEnabled()).toBe(tenant === undefined);
  if (tenant) await form.getByLabel("Tenant").fill(tenant);
  await create.click();
  await page.getByRole("heading", { level: 1, name: `of-${token}` }).waitFor();
  const { body } = await server.as("all-admin", "GET", `/api/v1/deployments/of-${token}`);
  expect(body).toMatchObject({ tenant: tenant ?? "blue" });
  await window.close();
});

test.each([
  ["all-admin", "red"],
  ["blue-admin", undefined],
])("%s submits a job, and names the tenant %s", async (token, tenant) => {
  const { window, page } = await open(token, "/jobs");
  await page.getByRole("button", { name: "Submit a job" }).click();
  const form = page.getByRole("dialog");
  await form.getByLabel("Pool").fill("nowhere");
  expect(await form.getByLabel("Tenant").count()).toBe(tenant ? 1 : 0);
  if (tenant) await form.getByLabel("Tenant").fill(tenant);
  await form.getByRole("button", { name: "Submit" }).click();
  await page.waitForURL(/\/jobs\/[0-9a-f-]{36}/);
  const path = `/api/v1${new URL(page.url()).pathname}`;
  const statusIn = async (of: string) =>
    (await server.as("all-admin", "GET", `${path}?tenant=${of}`)).status;
  expect([await statusIn(tenant ?? "blue"), await statusIn("another")]).toEqual([200, 404]);
  await window.close();
});
