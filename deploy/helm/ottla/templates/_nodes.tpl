{{- /* A set of nodes: `root`, its `name`, `count` and `roles`, and the node id of its `first` pod. */ -}}
{{- define "ottla.nodes" -}}
{{- $values := .root.Values }}
{{- $release := .root.Release.Name }}
{{- $secure := and $values.tls.existingSecret $values.auth.existingSecret }}
{{- $listener := ternary "CLIENTS" "PLAINTEXT" (not (empty $secure)) }}
{{- $controller := contains "controller" .roles }}
{{- $external := $values.external }}
{{- $brokers := add (int $values.nodes) (int $values.brokers) }}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ .name }}
spec:
  serviceName: {{ .name }}
  replicas: {{ .count }}
  podManagementPolicy: Parallel
  minReadySeconds: {{ $values.minReadySeconds }}
  selector:
    matchLabels: {app: {{ .name }}}
  template:
    metadata:
      labels: {app: {{ .name }}}
      annotations: {prometheus.io/scrape: "true", prometheus.io/port: "9094"}
    spec:
      terminationGracePeriodSeconds: 60
      {{- include "ottla.pod" .root | nindent 6 }}
      {{- include "ottla.affinity" .root | nindent 6 }}
      containers:
        - name: node
          image: {{ $values.image }}
          {{- include "ottla.container" .root | nindent 10 }}
          command: ["sh", "-ec"]
          args:
            - |
              umask 077
              n=${HOSTNAME##*-}
              name=$HOSTNAME.{{ .name }}
              cat > /run/ottla/server.properties <<END
              process.roles={{ .roles }}
              node.id=$((n + {{ .first }}))
              listeners={{ $listener }}://:9092{{ if $external.enabled }},EXTERNAL://:9095{{ end }}{{ if $controller }},CONTROLLER://:9093{{ end }}
              advertised.listeners={{ $listener }}://$name:9092{{ if $external.enabled }},EXTERNAL://{{ include "ottla.external-address" . }}{{ end }}
              inter.broker.listener.name={{ $listener }}
              {{- if lt $brokers 3 }}
              offsets.topic.replication.factor={{ $brokers }}
              transaction.state.log.replication.factor={{ $brokers }}
              transaction.state.log.min.isr={{ $brokers }}
              share.coordinator.state.topic.replication.factor={{ $brokers }}
              share.coordinator.state.topic.min.isr={{ $brokers }}
              {{- end }}
              controller.listener.names=CONTROLLER
              controller.quorum.voters={{ range $i := until (int $values.nodes) }}{{ if $i }},{{ end }}{{ add1 $i }}@{{ $release }}-{{ $i }}.{{ $release }}:9093{{ end }}
              log.dirs=/var/lib/ottla/data
              {{- if $secure }}
              listener.security.protocol.map=CLIENTS:SASL_SSL,CONTROLLER:SASL_SSL{{ if $external.enabled }},EXTERNAL:SASL_SSL{{ end }}
              sasl.enabled.mechanisms=PLAIN
              sasl.mechanism.inter.broker.protocol=PLAIN
              sasl.mechanism.controller.protocol=PLAIN
              listener.name.controller.sasl.enabled.mechanisms=PLAIN
              ssl.keystore.type=PEM
              ssl.keystore.location=/run/ottla/server.pem
              ssl.truststore.type=PEM
              ssl.truststore.location=/etc/ottla/tls/ca.crt
              authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
              ottla.audit.enable=true
              {{- else if $external.enabled }}
              listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT
              {{- end }}
              {{- if $values.encryption.existingSecret }}
              ottla.encryption.master.key.file=/etc/ottla/encryption/master-keys
              {{- end }}
              {{- if $values.metrics.existingSecret }}
              ottla.http.listener=0.0.0.0:9094
              ottla.http.users.file=/etc/ottla/metrics/users
              {{- else if $values.allowOpen }}
              ottla.http.listener=0.0.0.0:9094
              ottla.allow.open=true
              {{- else }}
              ottla.http.listener=127.0.0.1:9094
              {{- end }}
              END
              {{- if $values.properties }}
              cat >> /run/ottla/server.properties <<'END'
              {{- range $name, $value := $values.properties }}
              {{ $name }}={{ $value }}
              {{- end }}
              END
              {{- end }}
              {{- if $secure }}
              {{- if $external.enabled }}
              sed -n 's/^listener\.name\.clients\./listener.name.external./p' /etc/ottla/auth/auth.properties >> /run/ottla/server.properties
              {{- end }}
              cat /etc/ottla/auth/auth.properties >> /run/ottla/server.properties
              cat /etc/ottla/tls/tls.key /etc/ottla/tls/tls.crt > /run/ottla/server.pem
              {{- end }}
              ottla storage format --ignore-formatted -t {{ required "clusterId is needed" $values.clusterId }} -c /run/ottla/server.properties
              exec ottla server start /run/ottla/server.properties
          ports:
            - {containerPort: 9092}
            {{- if $controller }}
            - {containerPort: 9093}
            {{- end }}
            - {containerPort: 9094}
            {{- if $external.enabled }}
            - {containerPort: 9095}
            {{- end }}
          readinessProbe:
            {{- include "ottla.probe" "http://127.0.0.1:9094/readyz" | nindent 12 }}
          livenessProbe:
            {{- include "ottla.probe" "http://127.0.0.1:9094/healthz" | nindent 12 }}
            initialDelaySeconds: 20
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          volumeMounts:
            - {name: data, mountPath: /var/lib/ottla}
            - {name: run, mountPath: /run/ottla}
            - {name: tmp, mountPath: /tmp}
            {{- if $secure }}
            - {name: tls, mountPath: /etc/ottla/tls, readOnly: true}
            - {name: auth, mountPath: /etc/ottla/auth, readOnly: true}
            {{- end }}
            {{- if $values.encryption.existingSecret }}
            - {name: encryption, mountPath: /etc/ottla/encryption, readOnly: true}
            {{- end }}
            {{- if $values.metrics.existingSecret }}
            - {name: metrics, mountPath: /etc/ottla/metrics, readOnly: true}
            {{- end }}
      volumes:
        - {name: run, emptyDir: {medium: Memory, sizeLimit: 16Mi}}
        - {name: tmp, emptyDir: {sizeLimit: 256Mi}}
        {{- if $secure }}
        - {name: tls, secret: {secretName: {{ $values.tls.existingSecret }}, defaultMode: 0440}}
        - {name: auth, secret: {secretName: {{ $values.auth.existingSecret }}, defaultMode: 0440}}
        {{- end }}
        {{- if $values.encryption.existingSecret }}
        - {name: encryption, secret: {secretName: {{ $values.encryption.existingSecret }}, defaultMode: 0440}}
        {{- end }}
        {{- if $values.metrics.existingSecret }}
        - {name: metrics, secret: {secretName: {{ $values.metrics.existingSecret }}, defaultMode: 0440}}
        {{- end }}
  volumeClaimTemplates:
    - metadata: {name: data}
      spec:
        accessModes: [ReadWriteOnce]
        resources: {requests: {storage: {{ $values.storage }}}}
{{- end }}
{{- /* The label selector of all nodes, those without a controller too. */ -}}
{{- define "ottla.every-node" -}}
matchExpressions:
  - {key: app, operator: In, values: [{{ .Release.Name }}, {{ .Release.Name }}-broker]}
{{- end }}
{{- define "ottla.affinity" -}}
{{- if ne .Values.antiAffinity "none" -}}
affinity:
  podAntiAffinity:
    {{- if eq .Values.antiAffinity "hard" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: {{ .Values.topologyKey }}
        labelSelector:
          {{- include "ottla.every-node" . | nindent 10 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: {{ .Values.topologyKey }}
          labelSelector:
            {{- include "ottla.every-node" . | nindent 12 }}
    {{- end }}
{{- end }}
{{- end }}
{{- /* Where clients outside reach the pod whose shell expands this: a port of its own, or a name of its own. */ -}}
{{- define "ottla.external-address" -}}
{{- $external := .root.Values.external }}
{{- if eq $external.type "NodePort" -}}
{{ $external.host }}:$((n + {{ include "ottla.first-node-port" . }}))
{{- else -}}
$HOSTNAME.{{ $external.domain }}:9095
{{- end }}
{{- end }}
{{- define "ottla.first-node-port" -}}
{{- $offset := ternary 0 (int .root.Values.nodes) (contains "controller" .roles) }}
{{- add (int .root.Values.external.firstNodePort) $offset }}
{{- end }}
