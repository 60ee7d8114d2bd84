import { context, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace';
import type { SpanExporter } from './spans.js';

/** Short, so that a turn is visible soon after it has ended. */
const BATCH_MS = 1_000;
const CLOSE_TIMEOUT_MS = 3_000;

export interface OtlpOptions {
  /** The address of a collector, without `/v1/traces`. */
  readonly endpoint: string;
  readonly capturesContent: boolean;
  readonly serviceName: string;
  readonly hostId: string;
  readonly version: string;
}

/** Exports spans over OTLP; imported only if an endpoint is configured. The SDK reads further OTEL_* variables. */
export function createOtlpExporter(options: OtlpOptions): SpanExporter {
  const { endpoint, capturesContent, serviceName, hostId, version } = options;
  const exporter = new OTLPTraceExporter({ url: `${endpoint.replace(/\/+$/, '')}/v1/traces` });
  const provider = new TracerProvider({
    resource: resourceFromAttributes({
      'service.name': serviceName,
      'service.version': version,
      'service.instance.id': hostId,
    }),
    spanProcessors: [new BatchSpanProcessor({ exporter, scheduledDelayMillis: BATCH_MS })],
  });
  // For spans of plugins; the first host of a process provides them.
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(provider);
  return {
    tracer: provider.getTracer('sibyl', version),
    capturesContent,
    close: async () => {
      // A collector that is away must not keep the host from stopping.
      await provider.forceFlush({ timeoutMillis: CLOSE_TIMEOUT_MS }).catch(() => undefined);
      await provider.shutdown().catch(() => undefined);
    },
  };
}
