import { findChromium } from "@tenure/testing/programs/bring-chromium";
import { scratchDirectory } from "@tenure/testing/scratch";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";

export const WIDE = { width: 1280, height: 820 };
export const NARROW = { width: 390, height: 844 };

export interface View {
  viewport?: { width: number; height: number };
  colors?: "light" | "dark";
}

/** The machine's Chromium, without a window. Closes with the process at the latest. */
export async function openBrowser(): Promise<Browser> {
  const { executable, env } = await findChromium();
  return chromium.launch({
    executablePath: executable,
    // A container has neither user namespaces nor a large /dev/shm.
    args: [
      "--no-sandbox",
      "--disable-dev-shm-usage",
      "--disable-gpu",
      "--font-render-hinting=none",
    ],
    env: { ...process.env, ...env, HOME: scratchDirectory("browser") } as Record<string, string>,
  });
}

/** A person's own window: cookies and storage of its own. */
export async function openWindow(browser: Browser, view: View = {}): Promise<BrowserContext> {
  return browser.newContext({
    viewport: view.viewport ?? WIDE,
    colorScheme: view.colors ?? "light",
    reducedMotion: "reduce",
    locale: "en-GB",
    timezoneId: "UTC",
  });
}

/** As a person does it: the page, the field, the button. */
export async function signIn(page: Page, url: string, token: string): Promise<void> {
  await page.goto(url);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator(".shell").waitFor();
}

/** Everything a page complained about: an error of a script, or something its policy refused. */
export function complaintsOf(page: Page): string[] {
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => {
    const text = message.text();
    // A refused request is logged by the browser itself, and expected where a test makes one.
    if (message.type() === "error" && !/Failed to load resource/.test(text)) complaints.push(text);
  });
  return complaints;
}
