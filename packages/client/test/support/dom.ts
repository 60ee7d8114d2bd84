import { JSDOM } from 'jsdom';

// To be imported before React. Not vitest's jsdom environment: its AbortSignal is none that Node's fetch takes.
const { window } = new JSDOM('<!doctype html><body></body>', { pretendToBeVisual: true });
const { document, HTMLElement, HTMLIFrameElement, Node } = window;
Object.assign(globalThis, { window, document, HTMLElement, HTMLIFrameElement, Node });
