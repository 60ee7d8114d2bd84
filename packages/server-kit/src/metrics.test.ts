import { describe, expect, it } from 'vitest';
import { MetricsRegistry } from './metrics.js';

describe('MetricsRegistry', () => {
  it('prints counters by labels, escaped', () => {
    const registry = new MetricsRegistry();
    const counter = registry.counter('requests_total', 'Answered requests');
    counter.increment({ route: '/a', status: '200' });
    counter.with({ route: '/a', status: '200' }).increment();
    counter.increment({ route: 'a"\\\n', status: '404' });
    expect(registry.print()).toBe(
      [
        '# HELP requests_total Answered requests',
        '# TYPE requests_total counter',
        'requests_total{route="/a",status="200"} 2',
        'requests_total{route="a\\"\\\\\\n",status="404"} 1',
        '',
      ].join('\n'),
    );
  });

  it('prints the head of a counter that counted nothing', () => {
    const registry = new MetricsRegistry();
    registry.counter('empty_total', 'Nothing');
    expect(registry.print()).toBe('# HELP empty_total Nothing\n# TYPE empty_total counter\n');
  });

  it('prints cumulative buckets, sum and count of a histogram', () => {
    const registry = new MetricsRegistry();
    const histogram = registry.histogram('seconds', 'Time to answer', [0.1, 1]);
    for (const value of [0.1, 0.5, 5]) histogram.observe({ method: 'get' }, value);
    expect(registry.print()).toBe(
      [
        '# HELP seconds Time to answer',
        '# TYPE seconds histogram',
        'seconds_bucket{method="get",le="0.1"} 1',
        'seconds_bucket{method="get",le="1"} 2',
        'seconds_bucket{method="get",le="+Inf"} 3',
        'seconds_sum{method="get"} 5.6',
        'seconds_count{method="get"} 3',
        '',
      ].join('\n'),
    );
  });

  it('reads gauges when it prints, in the order of creation', () => {
    const registry = new MetricsRegistry();
    let height = 1;
    registry.gauge('height', 'Height', () => height);
    registry.gauge('up', 'Nodes', () => [{ labels: { node: '1' }, value: 0 }]);
    height = 2;
    expect(registry.print()).toBe(
      '# HELP height Height\n# TYPE height gauge\nheight 2\n# HELP up Nodes\n# TYPE up gauge\nup{node="1"} 0\n',
    );
  });

  it('addProcessGauges measures memory', () => {
    const registry = new MetricsRegistry();
    registry.addProcessGauges();
    expect(registry.print()).toMatch(/^process_resident_memory_bytes [1-9]\d+$/m);
    expect(registry.print()).toMatch(/^nodejs_heap_used_bytes [1-9]\d+$/m);
  });
});
